"""The scanner: what it finds, what it leaves alone, on which line, and at what cost.

Every secret here is made up, and put together at run time so that no scanner of a code host finds one.
"""

import base64
import gzip
import json
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.notes import secret_labels, secret_views, secrets
from vault_memory.notes.model import Finding
from vault_memory.notes.secret_numbers import is_card, is_chinese_id
from vault_memory.notes.secret_words import english, passes_checksum
from vault_memory.notes.secrets import scan
from vault_memory_tests.fixtures.secret_samples import RULE_IDS, SAMPLES, every_prefixed, token_of

_ALNUM = string.ascii_letters + string.digits


def made(length: int, alphabet: str = _ALNUM, seed: int = 1) -> str:
    """Give text that looks drawn at random and is the same every time."""
    state, out = seed * 7919 + length, []
    for _ in range(length):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(alphabet[(state >> 8) % len(alphabet)])
    return "".join(out)


HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
WORD = "Maple" + "#" + "4821"
DRAWN = "Tq7" + "!vX2" + "kLm"
PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"
UUID = "-".join(made(size, HEX) for size in (8, 4, 4, 4, 12))
KEY32 = base64.b64encode(bytes(range(3, 250, 8))[:31] + b"\x07").decode()
JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"HS256"}', b'{"sub":"4679"}', bytes(range(90, 122)))
)
PEM_HEAD, PEM_TAIL = "-----BEGIN " + "RSA PRIVATE KEY-----", "-----END " + "RSA PRIVATE KEY-----"
PEM_BODY = "\n".join(made(64, _ALNUM + "+/", seed) for seed in range(4))

TOKENS = {
    "github_token": "ghp" + "_" + made(36),
    "gitlab_token": "glpat" + "-" + made(20),
    "openrouter_key": "sk-or" + "-v1-" + made(64, HEX),
    "anthropic_key": "sk-ant" + "-api03-" + made(90),
    "openai_key": "sk-proj" + "-" + made(60),
    "openai_style_key": "sk" + "-" + made(48),
    "huggingface_token": "hf" + "_" + made(34),
    "google_api_key": "AI" + "za" + made(35),
    "aws_key_id": "AK" + "IA" + made(16, UPPER),
    "slack_token": "xox" + "b-" + made(12, string.digits) + "-" + made(24),
    "stripe_key": "sk_" + "live_" + made(24),
    "npm_token": "npm" + "_" + made(36),
    "telegram_token": made(10, "123456789") + ":A" + "A" + made(33),
    "zhipu_key": made(32, HEX) + "." + made(16),
    "age_key": "AGE-SECRET" + "-KEY-1" + made(58, UPPER),
    "generic_token": "acme" + "_live_" + made(32),
    "jwt": JWT,
}

POSITIVE = {
    "password label": f"password: {WORD}",
    "password in prose": f"the root password was changed to {WORD} yesterday",
    "German": f"Passwort: {WORD}",
    "French": f"mot de passe : {WORD}",
    "Russian": f"пароль: {WORD}",
    "Japanese": f"パスワード：{WORD}",
    "Korean": f"비밀번호: {WORD}",
    "Chinese": f"密码：{WORD}",
    "Chinese, spaced": f"密 码：{WORD}",
    "Chinese, traditional": f"密碼：{WORD}",
    "Chinese, sentence": f"数据库的密码已经改为 {WORD}，记得更新",
    "Chinese, corner quotes": f"管理员口令为「{WORD}」",
    "Chinese, qualified": f"服务器密码（root）：{WORD}",
    "Chinese pass-phrase": "口令：" + "春江潮水连海平海上明月",
    "value first": f"use {WORD} as the password",
    "Chinese, value first": f"用 {WORD} 作为密码",
    "Chinese, adjacent": f"root密码{WORD}",
    "next line": f"Password:\n{WORD}",
    "next line, heading": f"## 密码\n\n`{DRAWN}`",
    "user and password": f"账号密码：jim / {WORD}",
    "credentials": f"creds: jim:{DRAWN}",
    "table column": f"| 网站 | 账号 | 密码 |\n|---|---|---|\n| 图书馆 | jim | {WORD} |",
    "table row": f"| API Key | {made(32)} |",
    "csv column": f"site,user,password\nshop,jim,{WORD}",
    "HTML cell": f"<tr><td>Password</td><td>{WORD}</td></tr>",
    "dotenv": f"DB_PASSWORD={DRAWN}",
    "yaml": f"  password: '{DRAWN}'",
    "json": f'{{"apiKey": "{made(32)}"}}',
    "xml": f"<password>{DRAWN}</password>",
    "typed assignment": f'api_key: str = "{made(32)}"',
    "call": f'client.setPassword("{DRAWN}")',
    "name and value": f"- name: DB_PASSWORD\n  value: {DRAWN}",
    "secret": f"client_secret: {made(32)}",
    "hexadecimal key": f"API key = {made(40, HEX)}",
    "key as UUID": f"ARK_API_KEY={UUID}",
    "pair of keys": f"AWS_SECRET_ACCESS_KEY={made(40)}",
    "bearer": f"Authorization: Bearer {made(40)}",
    "basic": "Authorization: Basic " + base64.b64encode(f"jim:{DRAWN}".encode()).decode(),
    "header": f"X-Api-Key: {made(32)}",
    "cookie": f"Cookie: theme=dark; sessionid={made(32)}",
    "database address": f"postgresql://app:{DRAWN}@db.internal:5432/shop",
    "web address": f"[panel](https://jim:{made(12)}@nas.local/)",
    "connection string": f"Server=db;User Id=sa;Password={DRAWN};",
    "curl": f"curl -u 'jim:{DRAWN}' https://ci.internal/",
    "docker login": f"docker login -u jim -p {DRAWN} registry.internal",
    "mysql": f"mysql -u root -p{DRAWN} shop",
    "sql": f"CREATE USER 'app'@'%' IDENTIFIED BY '{DRAWN}';",
    "netrc": f"machine api.internal login jim password {DRAWN}",
    "pgpass": f"db.internal:5432:shop:app:{DRAWN}",
    "WireGuard": f"[Interface]\nPrivateKey = {KEY32}",
    "Wi-Fi code": f"WIFI:T:WPA;S:Home;P:{DRAWN};;",
    "PIN": "Debit card PIN: 7392",
    "Chinese PIN": "银行卡取款密码 739251",
    "TOTP address": f"otpauth://totp/Shop:jim?secret={made(32, BASE32)}&issuer=Shop",
    "TOTP label": "两步验证密钥：" + " ".join(made(4, "abcdefgh234567", seed) for seed in range(8)),
    "app password": "Gmail app password: " + "qzvk hxtw jmrp bnlc",
    "recovery codes": "备用验证码：\n- 9957 8374\n- 7180 9795\n- 3716 4058",
    "phrase": PHRASE,
    "phrase, numbered": "\n".join(f"{number}. {word}" for number, word in enumerate(PHRASE.split(), 1)),
    "phrase, table": "| " + " | ".join(PHRASE.split()) + " |",
    "phrase, Chinese": "助记词：" + " ".join("的一是在不了有和人这中大"),
    "identity number": "妈妈 110105" + "19491231002X",
    "card": "Visa 4751-1441-" + "6033-7951 exp 09/28",
    "social security": "SSN: 412-68-" + "9037",
    "passport": "护照号：EJ48" + "29137",
    "PEM": f"{PEM_HEAD}\n{PEM_BODY}\n{PEM_TAIL}",
    "PEM in JSON": json.dumps({"private_key": f"{PEM_HEAD}\n{PEM_BODY}\n{PEM_TAIL}\n"}),
    "Kubernetes": "kind: Secret\ndata:\n  blob: " + base64.b64encode(DRAWN.encode()).decode(),
    "BitLocker": "-".join(made(6, string.digits, seed) for seed in range(8)),
    "Slack webhook": "https://hooks.slack.com/services/T" + made(8, UPPER) + "/B" + made(8, UPPER) + "/" + made(24),
    "Feishu webhook": "https://open.feishu.cn/open-apis/bot/v2/hook/" + UUID,
    "wallet": f"metamask private key {made(64, HEX)}",
    "test key": "sk_" + "test_" + made(24),
    "pass-phrase": "passphrase: walnut lantern copper meadow",
    "pass-phrase, quoted in prose": "The passphrase of the backup is `walnut lantern copper meadow`.",
    "pass-phrase, dashes": "Passwort: walnut-lantern-copper-meadow",
    "pass-phrase, Chinese label": "口令：walnut lantern copper meadow",
    "pass-phrase, Chinese words": "口令：春风 化雨 明月 清泉",
    "seed of six words": "助记词：walnut lantern copper meadow pelican thistle",
    "patched sample words": "password: hunter2" + "prod!7",
    "key in groups": "API key: " + " ".join(made(8, HEX, seed) for seed in range(4)),
    "letter by letter": "password: " + " ".join(made(12)),
    "token, spaced": "use " + TOKENS["github_token"][:12] + " " + TOKENS["github_token"][12:] + " for now",
    "label, adjective": f"Contraseña nueva: {WORD}",
    "label in brackets": f"【密码】{WORD}",
    "label, long way to its colon": f"密码还是老的那个：{WORD}",
    "apposition": f"The vault password, {WORD}, goes to Kim.",
}

NEGATIVE = (
    "export OPENAI_API_KEY=YOUR_API_KEY", 'api_key = "sk-..."', "sk-xxxxxxxxxxxxxxxxxxxxxxxx", "password: <password>", "password: ********", "password = '[REDACTED]'",
    "token: {{ secrets.GITHUB_TOKEN }}", 'api_key=os.environ["OPENAI_API_KEY"]', "const key = process.env.API_KEY", "PASSWORD=changeme_please", "PGPASSWORD=$(cat /run/pg)",
    "db_password: ENC[AES256,data:abc,type:str]", "api_key: op://Private/OpenAI/credential", "`AKIAIOSFODNN7" + "EXAMPLE`", "postgres://USER:PASS@HOST/DB",
    "mysql://<user>:<password>@<host>/<db>", "redis://:${REDIS_PASSWORD}@cache:6379", "https://user:password@example.com/", "postgres://postgres:postgres@localhost/db",
    "password: string", "password=123456", "-p $MYSQL_PWD", "docker run -p 8080:80 app", "密码：xxxxxx", "密码：见 1Password", "密码：忘了，下次重置。", "密码: 待补充", "凯撒密码：HELLO",
    "摩斯密码：.... . .-.. ---", "密码长度：至少 16 位", "密码：8-16位字母和数字组合", "密码学导论：RSA2048", "《达芬奇密码》：丹布朗的小说", "密钥长度：2048 位", "流量密码：标题党",
    "密码：一种用来混淆的技术，使用者希望只有特定的人能读懂。", "令牌有效期 7200 秒", "密码 3 次输错会锁定", "密码 2024 年修改",
    "The password reset flow sends a signed link that expires in 15 minutes.", "Password: required, at least 12 characters, one digit.", "password policy: minimum length 14 (NIST 800-63B)",
    "max_tokens: 4096", "Tokens per second: 87.3", "The primary key is (user_id, created_at).", "Bearer of bad news: the token bucket is empty.", "key: value1", "Press key F12",
    "Current password hashing: argon2id, m=64MiB", "PIN 13 is the LED", "passport renewal: bring two photos", "pass@1: 87.3", "author: Jane99", "tokenizer: cl100k_base",
    "The file starts with `" + PEM_HEAD + "`, which tells you it is PKCS#1.", "Fixed in " + made(40, HEX) + ", see `" + made(7, HEX) + "`.", "tx 0x" + made(64, HEX),
    "id: " + UUID, "SHA256:" + KEY32[:43] + " is the host key fingerprint", '"lodash": integrity sha512-' + made(86) + "==", "![p](data:image/png;base64," + base64.b64encode(bytes(range(256))).decode() + ")",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + made(43) + " jim@laptop", "Interesting. ^" + made(6, HEX), "[link](secret-key-rotation-2024.md)", "getUserTokenForSession2", "apiKeyProviderFactoryV2",
    "Words: prefer, ensure, cousin, zebra, leave, stone, rude, then, invite, derive, today, humor", "abandon ability able about above absent absorb abstract absurd abuse access accident",
    "床 前 明 月 光 疑 是 地 上 霜 举 头 望 明 月 低 头 思 故 乡", "Order 20240184145559073 shipped", "订单号 8906212867694344036", "身份证号 110101199003071235", "身份证号：11010119900307XXXX", "卡号 6222570113399254172",
    "4242 4242 4242 4242", "const token = await getToken(); headers.Authorization = `Bearer ${token}`;", "interface User { password: string; apiKey?: string }", "SHELL=/bin/bash",
    "password: Node-Exporter-2", "clave: 2024-Q3-Report", "Release GPG key: " + made(40, HEX).upper(), "stripe publishable key pk_" + "live_" + made(24), "passphrase: see the envelope in the safe",
    "passphrase: four random words from the list", "Passphrase: ask Jim", "口令：由管理员当面告知", "助记词：抄在纸上，放在保险柜里", "seed words for the garden: poppy yarrow dahlia violet", "// => '2001:db8:0:0:0:0:0:1'",
    "Customer recipe museum customer below vector rule policy delete ready policy review. Merge reading garden alert book flight memory risk review chapter garden recipe.",
    'html = "<p>"\nhtml += "Hello2026"\nhtml += "</p>"', 'base = "https://api.internal"\npath = "/v2/tokens"\nget(base + path)', 'parts = ["docs", "v2", "index"]\nurl = "/".join(parts)', "key a1 opens shed b2, key c3 opens gate d4",
    '<input type="password" name="password" autocomplete="current-password">', "(?i)password\\s*[:=]\\s*\\S+", "kubectl create secret generic db --from-file=password=./pw.txt", "",
)  # fmt: skip


@pytest.mark.parametrize("rule", TOKENS)
@pytest.mark.parametrize("after", ["", "，", "。", "）", ".", "**", "`", " ", "\n", "；到期提醒"])
def test_token_is_found_before_any_punctuation(rule: str, after: str) -> None:
    """A vendor's token is found whatever follows it."""
    assert rule in {finding.rule for finding in scan(f"notes\n密钥（{TOKENS[rule]}{after}")}


@pytest.mark.parametrize("kind", POSITIVE)
def test_secret_is_found(kind: str) -> None:
    """Each kind of secret is found in the middle of a note."""
    assert () != scan(f"# Note\n\nSome words.\n\n{POSITIVE[kind]}\n\nMore words.\n")


@pytest.mark.parametrize("text", NEGATIVE)
def test_talk_and_placeholders_stay_clean(text: str) -> None:
    """Placeholders, examples, digests and talk about secrets give no finding."""
    assert () == scan(f"# Note\n\nSome words.\n\n{text}\n\nMore words.\n")


GH = TOKENS["github_token"]
VIEWS = {
    "escaped": (GH.replace("_", "\\_"), "markup"),
    "emphasis": (f"**{GH[:12]}**{GH[12:]}", "markup"),
    "zero width": (GH[:9] + "\u200b" + GH[9:20] + "\u2060" + GH[20:], "invisible"),
    "soft hyphen": (GH[:15] + "\u00ad" + GH[15:], "invisible"),
    "tag characters": ("".join(chr(0xE0000 + ord(char)) for char in GH), "invisible"),
    "full width": ("".join(chr(ord(char) + 0xFEE0) for char in GH), "nfkc"),
    "look-alikes": (f"раsswоrd: {WORD}", "confusables"),
    "entities": ("".join(f"&#{ord(char)};" for char in GH), "entities"),
    "entities twice": ("".join(f"&amp;#x{ord(char):x};" for char in GH), "entities"),
    "percent": ("".join(f"%{ord(char):02X}" for char in f"password={DRAWN}"), "percent"),
    "wrapped": (f"{GH[:20]}\n  {GH[20:]}", "joined"),
    "backslash": (f"{GH[:20]}\\\n{GH[20:]}", "joined"),
    "concatenated": (f'"{GH[:8]}" + "{GH[8:]}"', "joined"),
    "base64": (base64.b64encode(f"KEY={GH}".encode()).decode(), "base64"),
    "base64 twice": (base64.b64encode(base64.b64encode(GH.encode())).decode(), "base64"),
    "hexadecimal": (GH.encode().hex(), "base64"),
    "reversed": (GH[::-1], "reversed"),
}


ASSEMBLED = {
    "added": f'key = "{GH[:9]}"\nkey += "{GH[9:20]}"\nkey += "{GH[20:]}"',
    "added by name": f'key = "{GH[:9]}"; key = key + "{GH[9:]}"',
    "shell": f"K={GH[:9]}\nK+={GH[9:]}",
    "shell, filled": f'K={GH[:9]}\nK="${{K}}{GH[9:]}"',
    "PHP": f"$k = '{GH[:9]}';\n$k .= '{GH[9:]}';",
    "sum": f'a = "{GH[:9]}"\nb = "{GH[9:]}"\nsend(a + b)',
    "sum of three": f'a = "{GH[:9]}"\nb = "{GH[9:20]}"\nsend(a + b + "{GH[20:]}")',
    "Lua": f'local a = "{GH[:9]}"\nlocal b = "{GH[9:]}"\nsend(a .. b)',
    "template": f"a = '{GH[:9]}'\nb = '{GH[9:]}'\nsend(`${{a}}${{b}}`)",
    "f-string": f"rest = '{GH[9:]}'\nsend(f'{GH[:9]}{{rest}}')",
    "dollars": f'A="{GH[:9]}"\nB="{GH[9:]}"\ncurl -H "X-Auth: $A$B" https://x',
    "list": f'"".join(["{GH[:9]}", "{GH[9:]}"])',
    "list of names": f'a = "{GH[:9]}"\nb = "{GH[9:]}"\n[a, b].join("")',
    "password": f'password = "{DRAWN[:4]}"\npassword += "{DRAWN[4:]}"',
    "then forgotten": f'key = "{GH[:9]}"\nkey += "{GH[9:]}"\nkey = "other"',
}


@pytest.mark.parametrize("how", ASSEMBLED)
@pytest.mark.parametrize("frame", ["{}", "```\n{}\n```", "> {}"])
def test_a_secret_that_a_program_puts_together_is_found(how: str, frame: str) -> None:
    """Over several statements, whatever the language; reported where one of its pieces stands."""
    text = frame.format(ASSEMBLED[how] if frame != "> {}" else ASSEMBLED[how].replace("\n", "\n> "))
    lines = {finding.line for finding in scan(f"one\n\n{text}\n")}
    assert lines
    assert lines <= set(range(3, 4 + text.count("\n")))


def test_a_name_holds_what_it_was_given_last() -> None:
    """Examples that set one name anew do not run together."""
    assert not scan(f'word = "{GH[:12]}"\nword = "{GH[12:]}"\nuse(word)\n')


@pytest.mark.parametrize("name", VIEWS)
def test_hidden_secret_is_found_on_its_line(name: str) -> None:
    """A secret that is wrapped, escaped or encoded is found, with the view's name and the file line."""
    text, view = VIEWS[name]
    findings = scan(f"one\n\nthree: words\n{text}\nfive\n")
    assert {(4, view)} == {(finding.line, finding.view) for finding in findings}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_are_file_lines(newline: str) -> None:
    """Line numbers count the lines of the file, whatever ends them, also behind text that views shorten."""
    lines = ["**a** &amp; b\\_c", "ﬁ\u200bｘ <br> %41", "wrapped-\\", "line_", GH, "", f"密码：{WORD}"]
    assert [(5, "github_token"), (7, "labelled_password")] == [(f.line, f.rule) for f in scan(newline.join(lines))]


def test_table_value_is_found_on_its_row() -> None:
    """A value under a header is reported on the line of the value."""
    assert (Finding("labelled_password", 4),) == scan(
        f"| user | password |\n|---|---|\n| jim | see vault |\n| kim | {WORD} |"
    )


def test_finding_holds_no_part_of_the_secret() -> None:
    """Neither the findings nor their representation contain any four characters of what matched."""
    shown = repr(scan("\n".join([*TOKENS.values(), f"password: {WORD}"])))
    for secret in (*TOKENS.values(), WORD):
        body = secret[-12:]
        assert not [body[i : i + 4] for i in range(len(body) - 3) if body[i : i + 4] in shown]


def test_wrong_check_digits_stay_clean() -> None:
    """Identity and card numbers count only with the right check digit."""
    assert is_chinese_id("11010519491231002X")
    assert not is_chinese_id("110105194912310021")
    assert is_card("6222570113399254171")
    assert not is_card("6222570113399254172")


def test_phrase_checksum_follows_bip39() -> None:
    """The published test vectors pass, and one changed word fails."""
    assert passes_checksum(PHRASE.split(), english())
    assert not passes_checksum([*PHRASE.split()[:-1], "zebra"], english())
    assert 2048 == len(english())


def test_one_rule_never_hides_another() -> None:
    """A flood of one rule's findings is cut, and what another rule finds after it is kept."""
    findings = scan("\n".join([f"password: {WORD}"] * 200 + [GH]))
    assert secrets.MAX_FINDINGS_PER_RULE == sum(finding.rule == "labelled_password" for finding in findings)
    assert 201 in {finding.line for finding in findings if finding.rule == "github_token"}


def test_decoding_beyond_the_budget_fails_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that decodes to more than a scan looks at is reported, not passed."""
    monkeypatch.setattr(secret_views, "MAX_DECODED_CHARACTERS", 1000)
    assert [] == [f.rule for f in scan(base64.b64encode(b"dull words " * 50).decode())]
    assert [secrets.BUDGET_RULE] == [f.rule for f in scan(base64.b64encode(b"dull words " * 200).decode())]
    assert [secrets.BUDGET_RULE] == [f.rule for f in scan("\ufdfa" * 5000)]
    assert [secrets.BUDGET_RULE] == [f.rule for f in scan("\ufb03" * 5000)]


CRAFTED = ("password=", "eyJ", "https://a:", "-----BEGIN ", "密码", "密码：", "(", "&amp;amp;amp;", "&#65;", "%2541", "QUFBQUFBQUFBQUFB", "\\_", "**", "a\\\n", "\u200b", "<b>", '"a" + ')  # fmt: skip


@pytest.mark.parametrize("unit", CRAFTED)
def test_crafted_notes_cost_a_bounded_amount_of_text(unit: str) -> None:
    """The readings of a hostile note are few, and together a small multiple of it: no step can be made to grow."""
    text = (unit * 20_000)[:20_000]
    readings = list(secret_views.views(text))
    assert len(readings) <= 11
    assert sum(len(view.text) for view in readings) <= 12 * len(text) + 200


def test_labels_are_judged_a_constant_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many labels cost twice as many looks at values, not four times."""
    counts = []
    real = secret_labels._accept
    for repeats in (500, 1000):
        calls = [0]

        def counted(*args, calls=calls, **named):
            calls[0] += 1
            return real(*args, **named)

        monkeypatch.setattr(secret_labels, "_accept", counted)
        scan("password=" * repeats)
        counts.append(calls[0])
    assert 1.8 <= counts[1] / counts[0] <= 2.2


@given(st.text(alphabet=st.characters(), max_size=300))
def test_scan_never_raises(text: str) -> None:
    """Any string at all can be scanned, lone surrogates and controls included."""
    assert isinstance(scan(text), tuple)


@given(st.lists(st.sampled_from(["password", ": ", "密码", "：", "|", "\n", "eyJ", "&#", "%4", "\\u", "==", "`", "https://a:b@", "\ud800", "kind: Secret\n", "-----BEGIN PRIVATE KEY-----", "12 ", "QUFB" * 6, "{", "<td>"]), max_size=40))  # fmt: skip
def test_scan_never_raises_on_fragments(parts: list[str]) -> None:
    """Broken pieces of everything that rules look for can be scanned in any order."""
    assert all(finding.line >= 1 for finding in scan("".join(parts)))


_SURROUNDING = st.text(alphabet=st.sampled_from("abc xyz.,;，。（）*`|>#-\n 你好的"), max_size=120)


@given(
    _SURROUNDING,
    _SURROUNDING,
    st.sampled_from([*sorted(TOKENS.values()), f"password: {WORD}", f"密码：{WORD}", POSITIVE["database address"]]),
)
def test_secret_is_found_on_its_line_in_any_surrounding(before: str, after: str, secret: str) -> None:
    """Whatever ordinary text stands around a secret, it is found on the line it stands on."""
    text = f"{before}\n{secret} {after}"
    assert before.count("\n") + 2 in {finding.line for finding in scan(text)}


def test_import_is_light() -> None:
    """The query process loads the scanner without HTML names, an address parser or other libraries."""
    code = (
        "import sys; before = set(sys.modules); import vault_memory.notes.secrets; "  # a .pth file may load some
        "print(sorted({'html', 'urllib.parse', 're2', 'mnemonic'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=Path(secrets.__file__).parents[2]
    )
    assert "[]" == done.stdout.strip()


@pytest.mark.needs_data
def test_labelled_cases_reach_the_bar(test_data: Path) -> None:
    """Recall and precision on the labelled notes are at least 0.97 each."""
    with gzip.open(test_data / "cases" / "secrets_dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    secret = [bool(scan(row["text"])) for row in rows if row["label"] == 1]
    clean = [bool(scan(row["text"])) for row in rows if row["label"] == 0]
    assert sum(secret) / len(secret) >= 0.97
    assert sum(secret) / (sum(secret) + sum(clean)) >= 0.97


@pytest.mark.parametrize(
    "between",
    [
        "\x1b[0m", "\x1b]0;x\x07", "\x9b0m", "\x01", "\x7f", "\x85", "\x0c", "\u2028", "\ue000", "\ufdd0",
        "&#8203;", "&shy;", "<style>x</style>", "<!-- a comment that is longer than the token itself, by some words -->",
    ],
)  # fmt: skip
def test_what_an_output_is_cleaned_of_does_not_part_a_token(between: str) -> None:
    """Controls, private use and hidden markup between two halves of a token do not hide it."""
    token = "sk-or" + "-v1-" + "4f9a8c7b6d5e4f3a" * 4
    found = scan(f"# a\n\n{token[:22]}{between}{token[22:]} x\n")
    assert {3} == {finding.line for finding in found}


@pytest.mark.parametrize("header", ["密码", "password", "API key"])
def test_a_table_of_one_column_has_a_label_too(header: str) -> None:
    """A framed column under a label is a table of values, however narrow."""
    found = scan(f"# a\n\n| {header} |\n|---|\n| Zt7!wqLm29 |\n")
    assert [5] == sorted({finding.line for finding in found})


def test_every_rule_has_a_sample() -> None:
    """What is tested rule by rule is tested for all of them."""
    assert RULE_IDS == SAMPLES.keys()


@pytest.mark.parametrize("rule", sorted(SAMPLES))
def test_every_rule_finds_its_sample(rule: str) -> None:
    """Each rule of the pack finds a secret of its kind, on its line or one of its lines, by its own name."""
    findings = scan(f"# Notes\n\n{SAMPLES[rule]}\n\nMore text.\n")
    assert rule in {finding.rule for finding in findings}
    assert all(3 <= finding.line <= 3 + SAMPLES[rule].count("\n") for finding in findings)


def test_every_prefix_of_every_vendor_is_found() -> None:
    """Each prefix in the table, inside a Chinese sentence without a space."""
    missed = [
        (rule, prefix) for rule, prefix in every_prefixed() if not scan(f"看这里：{token_of(rule, prefix)}。后面")
    ]
    assert [] == missed


_SHOWN_AS_NOTHING = (
    "<br>", "<BR />", "<wbr>", "<img src=x>", "<span\nclass=x>", "<x-y>", "<svg></svg>", "</p><p>", "<?php x ?>", "<!DOCTYPE x>",
    "<![CDATA[]]>", "<!---->", "<!-->", "<!-- a\nb > c -->", "%%a\nb%%", "<style>\na{}</style>", "<script>x<y</script>",
    "![](x.png)", "![alt](x)", "![alt][r]", "![[img.png]]", "[](x)", "[][r]", "[^1]", "^[a note]", "**", "`", "~", "$",
    "\u0301", "\u0336", "\u0489", "\u20e3", "\ufe0f", "\U000e0101", "\u200b", "\u2060", "\u00ad", "\u180e", "\u2800", "\u2028",
    "\u00a0", "\u2003", "\u202f", "\u3000", "&nbsp;", "&shy;", "&zwnj;", "&#8203;", "\\u200b", "%E2%80%8B", "\x1b[31m", "\n", "\\\n", "<br>\n",
)  # fmt: skip


@pytest.mark.parametrize(
    "shape",
    [
        "[**{}**{}](x)",
        "[{}`{}`](x)",
        "[{}[{}](a)](b)",
        "**[{}](a)**{}",
        "[{}][r]<b>{}</b>",
        "[[note|{}]]{}",
        "=={}==~~{}~~",
    ],
)
def test_a_token_that_marks_and_links_share_is_found(shape: str) -> None:
    """What a link shows can hold marks of its own."""
    token = TOKENS["github_token"]
    assert {3} == {finding.line for finding in scan(f"note\n\nline {shape.format(token[:9], token[9:])} end\n")}


@pytest.mark.parametrize("between", _SHOWN_AS_NOTHING, ids=ascii)
def test_what_is_shown_as_nothing_does_not_part_a_token(between: str) -> None:
    """Whatever a renderer leaves out or a reader looks past joins what stands on both sides, and lines stay lines."""
    token = TOKENS["github_token"]
    for at in (3, 8, 21):
        findings = scan(f"note\n\nline {token[:at]}{between}{token[at:]} end\nlast\n")
        assert {3} == {finding.line for finding in findings}, at


_STACKABLE = tuple(one for one in _SHOWN_AS_NOTHING if one not in {"~", "$", "<x-y>"})  # marks inside of a word


@given(
    st.lists(st.sampled_from(_STACKABLE), min_size=1, max_size=4),
    st.lists(st.sampled_from(_STACKABLE), max_size=2),
)
def test_what_is_shown_as_nothing_can_be_piled_up(between: list[str], before: list[str]) -> None:
    """Several of them at once, and more of them in the line before, change neither that nor the line."""
    token = TOKENS["github_token"]
    text = f"start {' '.join(before)} x\n\n{token[:9]}{''.join(between)}{token[9:]}\nlast\n"
    line = text[: text.index(token[:9])].count("\n") + 1
    if not {"\n", "\\\n", "<br>\n"} & set(between[:-1]):  # an empty line parts a paragraph
        assert line in {finding.line for finding in scan(text)}


@pytest.mark.parametrize(
    "label",
    ["登录密码", "支付密码", "初始密码", "管理员密码", "口令", "暗号", "密碼", "通關密語", "WiFi 密码", "パスワード", "暗証番号", "合言葉", "비밀번호", "비번", "패스워드",
     "Passwort", "Kennwort", "WLAN-Schlüssel", "mot de passe", "code secret", "contraseña", "clave", "palavra-passe", "senha", "пароль", "wachtwoord", "hasło",
     "şifre", "parola", "lösenord", "adgangskode", "pass" + "ord", "salasana", "heslo", "jelszó", "mật khẩu", "รหัสผ่าน", "كلمة المرور", "סיסמה", "पासवर्ड", "kata sandi",
     "κωδικός"],
)  # fmt: skip
def test_a_password_is_found_by_its_label_in_many_languages(label: str) -> None:
    """The label's language, the tie and the kind of password are free of each other."""
    for tie in ("：{}", ": {}", " = {}", "：\n{}", ":\n\n`{}`"):
        for value in (WORD, DRAWN, "Zq8wKd" + "2mNv", "bluefin-" + "Harbour-42"):
            assert scan(f"# 笔记\n\n{label}{tie.format(value)}\n\nmore\n"), (tie, value)


@pytest.mark.parametrize(
    "text",
    [
        "the password is\n`" + "Xk9mQ2vLp7w`\n",
        "Password for the router is below:\n\n" + "Xk9mQ2vLp7w\n",
        "密码如下：\n" + "Xk9mQ2vLp7w\n",
        "password: hunter2" + "Xk9#m\n",
        "password = hunter2-" + "Zq8wKd\n",
        "pw: MyPassword" + "Xk9#mQ2v\n",
        "SNYK_TOKEN=" + UUID,
        "AZURE_OPENAI_KEY=" + made(32, HEX),
        "https://api.telegram.org/bot7312764672:A" + made(34) + "/getMe",
        base64.b64encode(("password=" + DRAWN).encode("utf-16-le")).decode(),
        base64.b64encode(("pass&#119;ord=" + DRAWN).encode()).decode(),
    ],
)
def test_wordings_and_wrappings(text: str) -> None:
    """A value on the next line, behind a sample word, under a name, in an address, in an encoded command."""
    assert scan(f"# Notes\n\n{text}\n\nmore\n")


def test_a_text_as_numbers_of_its_characters_is_read() -> None:
    """Hexadecimal with any mark between, decimal, calls, quoted-printable, octal and other escapes, base32, gzip."""
    token = TOKENS["github_token"]
    for text in (
        ":".join(f"{ord(char):02x}" for char in token),
        " ".join(f"{ord(char):02X}" for char in token),
        ", ".join(f"0x{ord(char):02x}" for char in token),
        ", ".join(str(ord(char)) for char in token),
        "+".join(f"chr({ord(char)})" for char in token),
        "".join(f"={ord(char):02X}" for char in token),
        "".join(f"\\{ord(char):03o}" for char in token),
        "".join(f"\\u{{{ord(char):x}}}" for char in token),
        f"{token[:24]}=\n{token[24:]}",
        base64.b32encode(token.encode()).decode(),
        base64.b64encode(gzip.compress(f"token {token}".encode())).decode(),
    ):
        assert scan(f"# Notes\n\n{text}\n"), text


@pytest.mark.parametrize(
    "text",
    [
        DRAWN + " (password)",
        f"`{DRAWN}` is the wifi password",
        f"{DRAWN} ← 密码",
        f"密码 👉 {DRAWN}",
        f"🔑 {DRAWN}",
        f"the router's password's {DRAWN}",
        f"pswd: {DRAWN}",
        f"pasword = {DRAWN}",
        f"mima: {DRAWN}",
        f"root@10.0.0.5 / {DRAWN}",
        f"admin:{DRAWN}",
        f"ENV DB_PASS {DRAWN}",
        f"set -x DB_PASS {made(11)}",
        f"<Key>Password</Key><Value>{DRAWN}</Value>",
        "密码：小猫" + "2024Abc!",
        "frase semilla: ábaco abdomen abeja abierto abogado abono aborto abrazo abrir abuelo abuso acabar",
        "シードフレーズ：あいこくしん あいさつ あいだ あおぞら あかちゃん あきる あけがた あける あこがれる あさい あさひ あしあと",
        "MIIE" + "vQIBADANBgkqhkiG9w0BAQEFAASC" + made(200),
        "b3BlbnNzaC1r" + "ZXktdjEAAAAABG5vbmU" + made(120),
        f"SSHPASS={DRAWN} sshpass -e ssh a@b",
    ],
)
def test_more_wordings(text: str) -> None:
    """A value before its label, signs for labels and ties, an account without a label, keys without their header."""
    assert scan(f"# Notes\n\n{text}\n\nmore\n")


@pytest.mark.parametrize(
    "text",
    [
        "seed phrase: twelve words that restore a wallet, to be kept on paper in a safe place",
        "10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 65, 66, 67, 68",
        "aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99",
        "admin/Dashboard-2.vue and root/config-1.yaml",
        "admin: the person who may do all",
        "🔑 key points of the talk",
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA" + made(200),
        "set -x PATH /usr/local/bin:/usr/bin",
        "ENV TOKEN_LIFETIME 3600",
        "密码：小写字母和数字2024",
        "Don't pass overlapped handles to processes][38835]",
        "**http2**: pass session to DEBUG\\_HTTP2SESSION2 (D)",
        "auth: 'aXNhYWNzOm5vdCBteSByZWFsIHBhc3N3b3Jk',",
        "password: hunter2",
        "password: shop_password_2",
        "the password is\nstored in the vault",
        "password: os.environ['DB_PASSWORD']",
        "CACHE_KEY=posts:v3:2024-11",
        "PRIMARY_KEY=user_id_2024",
        "request_token=" + UUID,
        "snmp-server community public RO",
        "password 7 characters-Long-1",
        "пароль хранится в 1Password",
        "Passwort: siehe KeePass",
        "La clave es la constancia.",
        "api <token> and <your-key> are placeholders",
        "密码：请联系管理员",
    ],
)
def test_more_talk_and_placeholders_stay_clean(text: str) -> None:
    """What manuals, change logs and code say of secrets is none."""
    assert () == scan(f"# Notes\n\n{text}\n\nmore\n")
