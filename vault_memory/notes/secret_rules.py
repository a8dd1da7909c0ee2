"""The table of secrets that give themselves away: prefixes, formats and addresses.

Belongs here: data, one line a kind. Does not: how the table is run (``secrets``) or values that only a label
marks (``secret_labels``). To add a vendor, add a line and a case to the unit test's table, and raise
``RULES_VERSION`` in ``secrets``.

A rule's literals are looked for first, in one pass of C code each; its pattern is compiled and run only
where one of them stands in the text. Every pattern is bounded or a single run of one character class, so
that it is linear. Group 1 is what must look random; without a group the match speaks for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vault_memory.notes import secret_numbers
from vault_memory.notes.secret_values import is_random, is_token_body, wordiness


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    Attributes:
        id: Stable identifier.
        literals: One of these stands in every match.
        pattern: What a match looks like.
        gate: What a text must hold besides a literal before the pattern is tried, because it is cheaper to
            find: ``digits``, a run of twelve; else a pattern in one of its words of 24 characters or more.
        check: ``body``: group 1 is no stand-in; ``random``: and machine-made; ``none``; or a checksum.
    """

    id: str
    literals: tuple[str, ...]
    pattern: str
    check: str = "body"
    gate: str = ""


_ALNUM = "[A-Za-z0-9]"
_URLSAFE = "[A-Za-z0-9_-]"
_HEX = "[0-9a-f]"
_LEFT = r"(?<![A-Za-z0-9])"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


def _prefixed(rule: str, prefixes: str, body: str, least: int, most: int = 400, check: str = "body") -> Rule:
    """Make a rule for tokens that are a prefix and a run of one character class."""
    literals = tuple(prefixes.split())
    heads = "|".join(literal.replace(".", r"\.").replace("$", r"\$") for literal in literals)
    return Rule(rule, literals, f"{_LEFT}(?:{heads})({body}{{{least},{most}}})", check)


PREFIXED: Final = (
    # Source hosts and registries
    _prefixed("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 30),
    _prefixed("github_token", "github_pat_", "[A-Za-z0-9_]", 40),
    _prefixed("gitlab_token", "glpat- gldt- glft- glsoat- glrt- glrtr- glptt- glimt- glagent- gloas- glcbt- glffct- GR1348941", "[A-Za-z0-9_.-]", 18),
    _prefixed("bitbucket_token", "ATBB BBDC-", "[A-Za-z0-9_=+/-]", 24, check="random"),
    _prefixed("atlassian_token", "ATATT3 ATCTT3 ATSTT3", "[A-Za-z0-9_=-]", 50),
    _prefixed("npm_token", "npm_", _ALNUM, 30),
    _prefixed("pypi_token", "pypi-AgE pypi-", _URLSAFE, 50),
    _prefixed("rubygems_token", "rubygems_", _HEX, 32),
    _prefixed("crates_token", "cio", _ALNUM, 32, 32, "random"),
    _prefixed("nuget_key", "oy2", "[a-z0-9]", 43, 43),
    _prefixed("clojars_token", "CLOJARS_", "[a-z0-9]", 50),
    _prefixed("docker_token", "dckr_pat_ dckr_oat_", _URLSAFE, 20),
    _prefixed("jfrog_token", "AKCp cmVmdGtuOj", _ALNUM, 48),
    _prefixed("sonar_token", "sqp_ squ_ sqa_", _HEX, 32),
    _prefixed("circleci_token", "CCIPAT_ CCIPRJ_", "[A-Za-z0-9_]", 30),
    _prefixed("buildkite_token", "bkua_ bkaj_ bkat_ bkct_", _ALNUM, 30),
    # Language models and what is built on them
    _prefixed("anthropic_key", "sk-ant-", _URLSAFE, 20),
    _prefixed("openrouter_key", "sk-or-", _URLSAFE, 24),
    _prefixed("openai_key", "sk-proj- sk-svcacct- sk-admin- sk-None- sess-", _URLSAFE, 32),
    _prefixed("huggingface_token", "hf_ api_org_", _ALNUM, 28),
    _prefixed("groq_key", "gsk_", _ALNUM, 30),
    _prefixed("xai_key", "xai-", _ALNUM, 40),
    _prefixed("replicate_token", "r8_", _ALNUM, 30),
    _prefixed("perplexity_key", "pplx-", _ALNUM, 32),
    _prefixed("tavily_key", "tvly-", _URLSAFE, 20),
    _prefixed("nvidia_key", "nvapi-", _URLSAFE, 40),
    _prefixed("jina_key", "jina_", _URLSAFE, 40),
    _prefixed("voyage_key", "pa-", _URLSAFE, 40, check="random"),
    _prefixed("firecrawl_key", "fc-", _HEX, 32, 32),
    _prefixed("cerebras_key", "csk-", "[a-z0-9]", 40),
    _prefixed("fireworks_key", "fw_", _ALNUM, 20, check="random"),
    _prefixed("together_key", "tgp_v1_", _URLSAFE, 30),
    _prefixed("langsmith_key", "lsv2_pt_ lsv2_sk_ ls__", "[A-Za-z0-9_]", 30),
    _prefixed("pinecone_key", "pcsk_", "[A-Za-z0-9_]", 40),
    _prefixed("wandb_key", "wandb_v1_ local-", "[A-Za-z0-9_]", 40),
    _prefixed("llama_cloud_key", "llx-", _ALNUM, 40),
    _prefixed("apify_token", "apify_api_", _ALNUM, 30),
    _prefixed("brave_key", "BSA", _URLSAFE, 27, 29, "random"),
    _prefixed("cursor_key", "key_", _HEX, 64, 64),
    _prefixed("e2b_key", "e2b_", _HEX, 40),
    _prefixed("mem0_key", "m0-", _ALNUM, 36),
    _prefixed("anyscale_key", "esecret_", _ALNUM, 20),
    _prefixed("dify_key", "app- dataset- fastgpt-", _ALNUM, 24, check="random"),
    _prefixed("coze_token", "pat_ sat_", _ALNUM, 60),
    _prefixed("kaggle_token", "KGAT_", _ALNUM, 30),
    _prefixed("secret_key_token", "sk_", _HEX, 48, 64),
    # Clouds and platforms
    _prefixed("google_api_key", "AIza", _URLSAFE, 33),
    _prefixed("google_api_key", "AQ.Ab", _URLSAFE, 40),
    _prefixed("google_oauth", "ya29.", "[A-Za-z0-9_.-]", 30),
    _prefixed("google_oauth", "GOCSPX-", _URLSAFE, 24),
    _prefixed("google_oauth", "1//0", _URLSAFE, 40),
    _prefixed("aws_session_token", "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz FQoDYXdz", "[A-Za-z0-9+/=%]", 80),
    _prefixed("google_hmac_key", "GOOG1E GOOG", "[A-Z0-9]", 20, 60, "random"),
    _prefixed("aws_bedrock_key", "ABSK bedrock-api-key-", "[A-Za-z0-9+/=]", 90, 400),
    _prefixed("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 40),
    _prefixed("heroku_key", "HRKU-", _URLSAFE, 36),
    _prefixed("cloudflare_token", "v1.0- cfat_ cfut_ cfk_", _URLSAFE, 40),
    _prefixed("netlify_token", "nfp_ nfc_ nfo_", _ALNUM, 30),
    _prefixed("vercel_token", "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", "[A-Za-z0-9_]", 24, check="random"),
    _prefixed("fly_token", "fo1_ fm1r_ fm2_ FlyV1", r"[A-Za-z0-9+/=_,-]", 40),
    _prefixed("render_key", "rnd_", _ALNUM, 24),
    _prefixed("supabase_key", "sbp_ sb_secret_", "[A-Za-z0-9_-]", 28),
    _prefixed("planetscale_token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[A-Za-z0-9_.=-]", 30),
    _prefixed("neon_key", "napi_", "[a-z0-9]", 40),
    _prefixed("mongodb_atlas_key", "mdb_sa_sk_", _URLSAFE, 30),
    _prefixed("databricks_token", "dapi", _HEX, 32),
    _prefixed("doppler_token", "dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.", "[A-Za-z0-9_.-]", 36),
    _prefixed("pulumi_token", "pul-", _HEX, 40),
    _prefixed("vault_token", "hvs. hvb. hvr.", _URLSAFE, 24),
    _prefixed("onepassword_token", "ops_eyJ", "[A-Za-z0-9_=+/-]", 60),
    _prefixed("alibaba_key_id", "LTAI", _ALNUM, 12, 26, "random"),
    _prefixed("tencent_key_id", "AKID", _ALNUM, 28, 48, "random"),
    _prefixed("volcengine_key_id", "AKLT AKTP", _ALNUM, 28, check="random"),
    _prefixed("baidu_key", "bce-v3/ALTAK- ALTAK-", "[A-Za-z0-9/_-]", 20),
    _prefixed("yandex_key", "AQVN y0_A t1.", "[A-Za-z0-9_=.-]", 36),
    _prefixed("vk_token", "vk1.a.", _URLSAFE, 40),
    _prefixed("scaleway_key", "SCW", "[A-Z0-9]", 17, 17, "random"),
    _prefixed("tailscale_key", "tskey-", _URLSAFE, 20),
    _prefixed("grafana_token", "glsa_ glc_ eyJrIjoi", "[A-Za-z0-9_+/=]", 30),
    _prefixed("newrelic_key", "NRAK- NRII- NRJS- NRRA-", _URLSAFE, 20),
    _prefixed("sentry_token", "sntrys_ sntryu_", "[A-Za-z0-9_=+/-]", 40),
    _prefixed("dynatrace_token", "dt0c01. dt0s01. dt0s16.", "[A-Z0-9.]", 40),
    _prefixed("honeycomb_key", "hcaik_ hcbik_ hcxik_", "[a-z0-9]", 30),
    _prefixed("posthog_key", "phx_ phs_", _ALNUM, 30),
    _prefixed("segment_token", "sgp_", _ALNUM, 40),
    _prefixed("prefect_key", "pnu_ pnb_", _ALNUM, 30),
    _prefixed("dagster_cloud_token", "agent: user:", r"[a-z0-9-]{2,40}:[0-9a-f]", 32, 32),
    _prefixed("readme_key", "rdme_", "[a-z0-9]", 60),
    _prefixed("scalingo_token", "tk-us-", _URLSAFE, 40),
    _prefixed("contentful_token", "CFPAT-", _URLSAFE, 40),
    _prefixed("frameio_token", "fio-u-", _URLSAFE, 50),
    _prefixed("harness_token", "pat. sat.", "[A-Za-z0-9_.-]", 60, check="random"),
    # Work and talk
    _prefixed("slack_token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", r"[A-Za-z0-9%./+=-]", 20),
    _prefixed("notion_token", "ntn_", _ALNUM, 36),
    _prefixed("notion_token", "secret_", _ALNUM, 40, 50, "random"),
    _prefixed("linear_key", "lin_api_ lin_oauth_", _ALNUM, 32),
    _prefixed("figma_token", "figd_ figo_ figu_ figor_ figoh_", _URLSAFE, 30),
    _prefixed("asana_token", "1/ 0/ 2/", "[0-9]{10,20}(?:/[0-9]{10,20})?:[a-f0-9]", 32, 32),
    _prefixed("trello_token", "ATTA", _HEX, 50),
    _prefixed("clickup_token", "pk_", "[0-9]{6,12}_[A-Z0-9]", 30, 34),
    _prefixed("typeform_token", "tfp_", "[A-Za-z0-9_.=-]", 40),
    _prefixed("dropbox_token", "sl.u. sl.", "[A-Za-z0-9_=-]", 100, 200, check="random"),
    _prefixed("postman_key", "PMAK-", "[a-f0-9-]", 50),
    _prefixed("hubspot_token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", "[0-9a-fA-F-]", 36),
    _prefixed("cal_key", "cal_live_", _HEX, 30),
    _prefixed("adafruit_key", "aio_", _ALNUM, 28, 28),
    _prefixed("facebook_token", "EAA EAACEdEose0cBA", _ALNUM, 80, check="random"),
    _prefixed("instagram_token", "IGQV IGAA", _ALNUM, 60),
    _prefixed("twitter_bearer", "AAAAAAAAAAAAAAAAAAAAA", "[A-Za-z0-9%]", 60, check="random"),
    _prefixed("dingtalk_secret", "SEC", _HEX, 60, 64),
    _prefixed("serverchan_key", "SCT sctp", "[0-9]{1,8}[A-Za-z]{1,2}[A-Za-z0-9]", 20, 60, "random"),
    # Mail and money
    _prefixed("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]", 30),
    _prefixed("mailgun_key", "key-", _HEX, 32, 32),
    _prefixed("brevo_key", "xkeysib- xsmtpsib-", "[a-zA-Z0-9-]", 50),
    _prefixed("resend_key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]", 16, 40),
    _prefixed("stripe_key", "sk_live_ rk_live_ sk_test_ rk_test_ sk_org_live_ whsec_", "[A-Za-z0-9+/=]", 16),
    _prefixed("square_token", "EAAA sq0csp- sq0atp- sq0idp-", _URLSAFE, 22, check="random"),
    _prefixed("paypal_token", "access_token$production$", r"[a-z0-9]{10,20}\$[a-f0-9]", 32),
    _prefixed("shopify_token", "shpat_ shpss_ shppa_ shpca_ shpua_", "[0-9a-fA-F]", 30),
    _prefixed("plaid_token", "access-production- access-development-", "[0-9a-f-]", 36),
    _prefixed("razorpay_key", "rzp_live_", _ALNUM, 14),
    _prefixed("flutterwave_key", "FLWSECK-", "[A-Za-z0-9-]", 30),
    _prefixed("easypost_key", "EZAK EZTK", _ALNUM, 54, 54),
    _prefixed("shippo_token", "shippo_live_", _HEX, 30),
    _prefixed("lob_key", "live_", "[a-f0-9]", 35, 40),
    _prefixed("adyen_key", "AQE", r"[a-zA-Z0-9+/]{40,80}[=]{0,2}-[A-Za-z0-9+/=^{}()<>;:.,~@#$%&*!?\[\]|`_-]", 20, 160),
    _prefixed("mapbox_token", "sk.eyJ", "[A-Za-z0-9_.-]", 40),
    _prefixed("hashicorp_token", ".atlasv1.", "[A-Za-z0-9_=-]", 50),
    # Keys and wallets
    _prefixed("age_key", "AGE-SECRET-KEY-1 AGE-PLUGIN-YUBIKEY-1 AGE-SECRET-KEY-PQ-1", "[A-Z0-9]", 40),
    _prefixed("extended_private_key", "xprv yprv zprv tprv uprv vprv", "[1-9A-HJ-NP-Za-km-z]", 90),
    _prefixed("nostr_key", "nsec1", "[a-z0-9]", 50),
    _prefixed("sui_key", "suiprivkey1", "[a-z0-9]", 50),
    _prefixed("tezos_key", "edsk edesk", "[1-9A-HJ-NP-Za-km-z]", 48),
    _prefixed("bip38_key", "6P", "[1-9A-HJ-NP-Za-km-z]", 56, 56, "random"),
)  # fmt: skip

_ZHIPU = r"[0-9a-f]{32}\.[A-Za-z0-9]{16}"
_DISCORD = r"\.[\w-]{6}\.[\w-]{27}"
_STELLAR = r"S[A-Z2-7]{55}"
_WIF = r"[5KLc9][1-9A-HJ-NP-Za-km-z]{50}"

FORMATS: Final = (
    Rule("aws_key_id", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T"), rf"{_LEFT}(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])([A-Z0-9]{{16}})(?![A-Za-z0-9])"),
    Rule("openai_key", ("T3BlbkFJ",), rf"{_LEFT}sk-([A-Za-z0-9_-]{{12,200}}T3BlbkFJ[A-Za-z0-9_-]{{12,200}})"),
    Rule("openai_style_key", ("sk-",), rf"{_LEFT}(?<![A-Za-z0-9]-)sk-(?:[a-z0-9]{{2,12}}-){{0,3}}([A-Za-z0-9_]{{20,200}})(?![A-Za-z0-9_]*-[a-z]{{3}})", "random"),
    Rule("openai_style_key", ("sk-",), rf"{_LEFT}(?<![A-Za-z0-9]-)sk-([a-z]{{40,64}})(?![A-Za-z0-9_-])", "letters"),
    Rule("openai_style_key", ("sk-",), rf"{_LEFT}sk-[a-z]{{2,12}}-({_UUID}|[a-z0-9]{{7}}(?:-[a-z0-9]{{7}}){{3}})(?![A-Za-z0-9_-])"),
    Rule("launchdarkly_key", ("sdk-", "mob-"), rf"{_LEFT}(?:sdk|mob)-({_UUID})(?![A-Za-z0-9_-])"),
    Rule("deepl_key", (":fx",), rf"{_LEFT}({_UUID}):fx(?![A-Za-z0-9])"),
    Rule("okta_token", ("SSWS",), r"SSWS[ \t]{1,4}(00[A-Za-z0-9_-]{38,44})"),
    Rule("mailgun_key", ("-",), rf"{_LEFT}([0-9a-f]{{32}}-[0-9a-f]{{8}}-[0-9a-f]{{8}})(?![A-Za-z0-9-])", "body", "[0-9a-f]{32}-"),
    Rule("azure_function_key", (".azurewebsites.net",), r"\.azurewebsites\.net/[^\s\"'<>]{0,200}[?&]code=([A-Za-z0-9_=%/+-]{40,120})"),
    Rule("weather_key", ("appid=", "APPID="), r"(?i)(?<![a-z])appid=([0-9a-f]{32})(?![0-9a-z])"),
    Rule("kubeconfig_key", ("client-key-data",), r"client-key-data[\"']?:[ \t]{0,4}[\"']?([A-Za-z0-9+/=]{60,6000})"),
    Rule("zhipu_key", (".",), rf"{_LEFT}([0-9a-f]{{32}}\.[A-Za-z0-9]{{16}})(?!\.?[A-Za-z0-9])", "random", _ZHIPU),
    Rule("discord_token", (".",), rf"{_LEFT}(?<![-_])([MNO][\w-]{{22,27}}\.[\w-]{{6}}\.[\w-]{{27,45}})(?![\w-])", "random", _DISCORD),
    Rule("telegram_token", (":A",), rf"(?:{_LEFT}|(?<=/bot))[0-9]{{8,11}}:(A[A-Za-z0-9_-]{{32,40}})"),
    Rule("twilio_key", ("SK",), rf"{_LEFT}SK([0-9a-f]{{32}})(?![A-Za-z0-9])"),
    Rule("mailchimp_key", ("-us",), rf"{_LEFT}([0-9a-f]{{32}})-us[0-9]{{1,2}}(?![0-9])"),
    Rule("airtable_token", ("pat",), rf"{_LEFT}pat[A-Za-z0-9]{{14}}\.([0-9a-f]{{64}})", "body", "[0-9a-f]{64}"),
    Rule("azure_secret", ("Q~",), rf"{_LEFT}([A-Za-z0-9_~.-]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,36}})"),
    Rule("azure_key", ("AccountKey=", "SharedAccessKey=", "accountkey=", "sharedaccesskey=", "AccessKey="), r"(?i)(?:AccountKey|SharedAccessKey|AccessKey)=([A-Za-z0-9+/=]{40,100})"),
    Rule("azure_devops_token", ("AZDO",), rf"{_LEFT}([A-Za-z0-9]{{70,80}}AZDO[A-Za-z0-9]{{4}})"),
    Rule("signed_url", ("sig=",), r"[?&]s[vrpe]=[^\s\"'<>]{1,200}&sig=([A-Za-z0-9%+/=]{40,100})"),
    Rule("heroku_key", ("heroku", "HEROKU"), rf"(?i)heroku[\w .:=\"'-]{{0,30}}({_UUID})"),
    Rule("onepassword_key", ("A3-",), rf"{_LEFT}A3-([A-Z0-9]{{5,6}}-(?:[A-Z0-9]{{4,12}}-){{3,5}}[A-Z0-9]{{5}})(?![A-Z0-9])"),
    Rule("slack_webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{30,200})"),
    Rule("discord_webhook", ("/webhooks/",), r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{15,22}/([A-Za-z0-9_-]{40,100})"),
    Rule("teams_webhook", ("webhook.office.com", "logic.azure.com"), r"(?:webhook\.office\.com/webhookb2|logic\.azure\.com(?::443)?/workflows)/([^\s\"'<>)]{40,300})"),
    Rule("google_chat_webhook", ("chat.googleapis.com/",), r"chat\.googleapis\.com/v1/spaces/[\w-]{6,30}/messages\?([^\s\"'<>)]{40,300})"),
    Rule("feishu_webhook", ("/open-apis/bot/",), rf"/open-apis/bot/(?:v2/)?hook/({_UUID}|[0-9A-Za-z]{{30,40}})"),
    Rule("wecom_webhook", ("qyapi.weixin.qq.com",), rf"qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=({_UUID})"),
    Rule("dingtalk_webhook", ("dingtalk.com/robot",), r"dingtalk\.com/robot/send\?access_token=([0-9a-f]{32,64})"),
    Rule("push_webhook", ("sctapi.ftqq.com/", "api.day.app/", "sc.ftqq.com/", "hooks.zapier.com/", "maker.ifttt.com/", "pushplus.plus/send"),
         r"(?:sctapi\.ftqq\.com/|sc\.ftqq\.com/|api\.day\.app/|hooks\.zapier\.com/hooks/catch/|maker\.ifttt\.com/trigger/\w{1,60}/(?:json/)?with/key/|pushplus\.plus/send\?token=)([A-Za-z0-9/_-]{18,100})"),
    Rule("jwt", ("eyJ",), r"(?<![A-Za-z0-9_.-])(eyJ[A-Za-z0-9_-]{8,2000}\.(?:eyJ)?[A-Za-z0-9_-]{8,6000}\.[A-Za-z0-9_-]{16,800})", "jwt"),
    Rule("jwe", ("eyJ",), r"(?<![A-Za-z0-9_.-])(eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{0,800}\.[A-Za-z0-9_-]{8,200}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{16,200})"),
    Rule("pem_private_key", ("PRIVATE KEY",), r"-----[ ]?BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?[ ]?-----", "pem"),
    Rule("pem_private_key", ("OpenVPN Static key",), r"-----BEGIN OpenVPN Static key V1-----", "pem"),
    Rule("pem_private_key", ("PRIVATE KEY",), r"---- BEGIN SSH2 (?:ENCRYPTED )?PRIVATE KEY ----", "pem"),
    Rule("putty_key", ("PuTTY-User-Key-File",), r"PuTTY-User-Key-File-[0-9]:[^\0]{0,3000}?Private-Lines: ?[0-9]{1,3}\s{1,4}[A-Za-z0-9+/=]{30}", "none"),
    Rule("otpauth_uri", ("otpauth",), r"otpauth(?:-migration)?://[^\s\"'<>)]{0,300}?(?:secret|data)=([A-Za-z0-9%+/=_-]{12,600})"),
    Rule("wifi_qr", ("WIFI:",), r"WIFI:(?:[^\n;]{0,80};){0,5}P:([^\n;]{8,80});", "password"),
    Rule("service_account", ("private_key",), r"\"private_key(?:_id)?\"\s{0,8}:\s{0,8}\"([0-9a-f]{40})\"", "body"),
    Rule("jwk_private", ('"kty"', "'kty'"), r"[\"']d[\"'][ \t]{0,4}:[ \t]{0,4}[\"']([A-Za-z0-9_-]{40,800})[\"']"),
    Rule("shadow_hash", (":$6$", ":$y$", ":$5$", ":$1$"), r"(?m)^[ \t>]{0,8}[a-z_][\w-]{0,31}:(\$(?:6|5|1|y)\$[./A-Za-z0-9=$]{20,200}):[0-9]{3,6}:"),
    Rule("bare_private_key", ("b3BlbnNzaC1rZXktdjE", "MIIEv", "MIIEo", "MIIEp", "MIICX", "MIICd", "MIIJQ", "MIIJK", "MHcCAQEE", "MIGHAgEA", "MIGTAgEA", "MC4CAQAw"),
         r"(?:b3BlbnNzaC1rZXktdjE|MII[EJC][A-Za-z0-9+/]{2}IBA[AD][A-Za-z0-9+/]|MHcCAQEE|MIGHAgEAMBMGByqGSM49|MIGTAgEAMBMGByqGSM49|MC4CAQAwBQYDK2VwBCIEI)([A-Za-z0-9+/=]{40,4000})"),
    Rule("bitcoin_key", ("5", "K", "L", "c", "9"), rf"{_LEFT}([5KLc9][1-9A-HJ-NP-Za-km-z]{{50,51}})(?![A-Za-z0-9])", "base58", _WIF),
    Rule("stellar_key", ("S",), rf"{_LEFT}(S[A-Z2-7]{{55}})(?![A-Za-z0-9])", "random", _STELLAR),
    Rule("keypair_array", ("[",), r"\[(?:[ \n]{0,4}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})[ \n]{0,4},){63}[ \n]{0,4}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})[ \n]{0,4}\]", "array"),
    Rule("k3s_token", ("K10",), rf"{_LEFT}K10([0-9a-f]{{64}}::[a-z]{{1,20}}:[A-Za-z0-9]{{16,80}})"),
    Rule("kubeadm_token", ("token",), r"token[ =:\"']{1,4}([a-z0-9]{6}\.[a-z0-9]{16})(?![a-z0-9.])", "random"),
    Rule("bitlocker_key", ("-",), r"(?<![0-9-])([0-9]{6}(?:-[0-9]{6}){7})(?![0-9-])", "none", "digits"),
    Rule("generic_token", ("_live_", "_prod_", "_sk_", "_pat_", "_secret_", "_api_", "_token_", "_key_", "-live-", "-prod-", "-secret-", "-pat-", "-token-", "_at_", "_rt_", "_svc_", "_v1_", "-v1-", "_admin_"),
         rf"{_LEFT}(?<![_-])(?!pk_|pub_|public)[a-z]{{2,12}}(?:[_-][a-z0-9]{{1,10}}){{1,3}}[_-]([A-Za-z0-9]{{24,200}})(?![A-Za-z0-9_-])", "random", "[A-Za-z0-9]{24}"),
    Rule("chinese_id", ("19", "20"), r"(?<![0-9A-Za-z_.\-/=])([1-8][0-9]{5}(?:19|20)[0-9]{2}[01][0-9][0-3][0-9]{4}[0-9Xx])(?![0-9A-Za-z_])", "chinese_id", "digits"),
    Rule("chinese_id", ("19", "20"), r"(?<![0-9A-Za-z_.\-/=])([1-8][0-9]{5} (?:19|20)[0-9]{2}[01][0-9][0-3][0-9] [0-9]{3}[0-9Xx])(?![0-9A-Za-z_])", "chinese_id", "digits"),
    Rule("bank_card", ("62",), r"(?<![0-9A-Za-z_.\-/=#])(62[0-9]{14}(?:[0-9]{3})?)(?![0-9A-Za-z_])", "card", "digits"),
    Rule("bank_card", ("62",), r"(?<![0-9A-Za-z_.\-/=#])(62[0-9]{2}(?:[ -][0-9]{4}){3}(?:[ -][0-9]{3})?)(?![0-9A-Za-z_])", "card", "digits"),
    Rule("payment_card", ("-", " "), r"(?<![0-9A-Za-z_.\-/=#])([3-6][0-9]{3}([ -])[0-9]{4}\2[0-9]{4}\2[0-9]{4})(?![0-9A-Za-z_-])", "card", "digits"),
    Rule("payment_card", ("-", " "), r"(?<![0-9A-Za-z_.\-/=#])(3[47][0-9]{2}([ -])[0-9]{6}\2[0-9]{5})(?![0-9A-Za-z_-])", "card", "digits"),
)  # fmt: skip

_CARD_WORDS = r"visa|master ?card|amex|american express|union ?pay|debit|credit card|card (?:no|number|nr)|card num|cvv|卡号|卡號|银行卡|储蓄卡|信用卡|借记卡|收款账号|银行账[号户]"
_TIE = r"[\s*_`\"'）)]{0,6}(?:number|no|nr|id)?[.#]?[\s*_`\"'）)]{0,4}(?:[:：=|#]|is|是|为|->|→)?[\s*_`\"'（(]{0,6}"
LABELLED: Final = (
    Rule("payment_card", ("ard", "isa", "ISA", "mex", "MEX", "CVV", "cvv", "卡", "账", "union", "Union"), rf"(?i)(?:{_CARD_WORDS})[^\n0-9]{{0,30}}([0-9](?:[ -]?[0-9]){{12,18}})(?![0-9A-Za-z_])", "card", "digits"),
    Rule("chinese_id", ("身份证", "身分證", "证件", "公民"), r"(?:身份证|身分證|证件|公民身份)[^\n0-9]{0,12}([1-8][0-9]{14})(?![0-9A-Za-z])", "body", "digits"),
    Rule("taiwan_id", ("身分證", "身份证", "身份證"), r"(?:身分證|身份[证證])[^\nA-Za-z0-9]{0,12}([A-Za-z][1289][0-9]{8})(?![0-9A-Za-z])", "taiwan_id"),
    Rule("hong_kong_id", ("身份证", "身份證", "HKID"), r"(?:身份[证證]|HKID)[^\nA-Za-z0-9]{0,12}([A-Z]{1,2}[0-9]{6} ?\([0-9A]\))", "none"),
    Rule("us_ssn", ("SSN", "ssn", "ocial"), rf"(?i)(?<![a-z])(?:ssn|social[ -]security(?:[ -]number)?){_TIE}((?!000|666|9)[0-9]{{3}}([ -]?)(?!00)[0-9]{{2}}\2(?!0000)[0-9]{{4}})(?![0-9])", "ssn"),
    Rule("passport", ("护照", "護照", "旅券", "通行证"), rf"(?:[护護]照|旅券|通行证)(?:号码?|號碼?|番号|编号)?{_TIE}([A-Za-z]{{1,2}}[0-9]{{7,8}}|[0-9]{{9}})(?![0-9A-Za-z])", "number"),
    Rule("passport", ("assport", "ASSPORT"), rf"(?i)(?<![a-z])passport{_TIE}(?=[A-Z0-9]*[0-9]{{6}})([A-Z0-9]{{7,10}})(?![0-9A-Za-z])", "number"),
    Rule("national_id", ("ational", "NINO", "adhaar", "river", "주민", "マイナンバー", "驾照", "社保"),
         rf"(?i)(?:national insurance|nino|aadhaar|driver'?s? licen[cs]e|주민등록번호|マイナンバー|驾驶证|驾照|社保卡?|社会保障){_TIE}(?:号码?)?[\s:：]{{0,3}}([A-Z]{{0,2}} ?[0-9](?:[ -]?[0-9]){{5,14}}[A-Z]?)(?![0-9A-Za-z])", "number"),
    Rule("wallet_key", ("rivate", "RIVATE", "私钥", "私鑰", "etamask", "wallet", "钱包", "錢包"), r"(?i)(?:private[ _-]?key|priv[ _-]?key|私[钥鑰]|metamask|wallet[ _-]?key|钱包|錢包)[^\n]{0,30}?(?<![0-9A-Za-z])(?:0x)?([0-9a-f]{64})(?![0-9a-z])", "body"),
    Rule("vault_token", ("ault", "AULT"), r"(?i)vault[\w .:=\"'`-]{0,30}?(?<![A-Za-z0-9.])s\.([A-Za-z0-9]{24})(?![A-Za-z0-9])", "random"),
    Rule("twilio_token", ("wilio", "WILIO"), r"(?i)twilio[^\n]{0,80}?(?:token|secret)[\s:=\"'`是为]{0,6}([0-9a-f]{32})(?![0-9a-z])", "body"),
    Rule("aws_secret_key", ("aws", "AWS", "ecret", "ECRET", "akid", "AKIA"), r"(?i)(?:aws[^\n]{0,30}(?:secret|key|sk)|secret[ _-]?access[ _-]?key|(?:AKIA|ASIA)[A-Z0-9]{16})[\s:=\"'`|,/]{1,12}(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])", "random", "[A-Za-z0-9+/]{40}"),
    Rule("alibaba_secret", ("LTAI",), r"LTAI[A-Za-z0-9]{12,26}[\s:=\"'`|,/;，；A-Za-z_-]{1,40}?(?<![A-Za-z0-9])([A-Za-z0-9]{30})(?![A-Za-z0-9])", "random"),
    Rule("bearer_token", ("earer", "EARER"), r"(?i)bearer[ \t:=\"'`]{1,4}([A-Za-z0-9._~+/-]{16,400}=*)", "random"),
    Rule("basic_auth", ("asic ", "BASIC "), r"(?i)\bbasic[ \t]{1,4}([A-Za-z0-9+/]{8,200}={0,2})", "basic"),
    Rule("basic_auth", ('"auth"', "_auth"), r"(?:\"auth\"[ \t]{0,4}:[ \t]{0,4}\"|_auth[ \t]{0,2}=[ \t]{0,2}\"?)([A-Za-z0-9+/]{8,400}={0,2})", "basic"),
    Rule("auth_header", ("-Key:", "-key:", "-Token:", "-token:", "-KEY:", "-TOKEN:", "-Secret:", "-secret:", "uthorization:", "UTHORIZATION:"), r"(?i)(?:x-[a-z-]{0,30}(?:key|token|secret)|private-token|authorization|proxy-authorization)[\"']?:[ \t]{0,4}[\"']?(?:token |apikey |key |sso-key )?([A-Za-z0-9._~+/:-]{16,400}=*)", "random"),
    Rule("session_cookie", ("ookie", "OOKIE"), r"(?i)cookie[\"'`]?[ \t]{0,4}[:：=]([^\n]{16,2000})", "cookies"),
    Rule("session_cookie", ("SESS", "sess", "z_c0", "connect.sid", "JSESSIONID", "bili_jct"), r"(?<![\w-])(?:PHPSESSID|JSESSIONID|ASP\.NET_SessionId|connect\.sid|SESSDATA|bili_jct|z_c0|sessionid|session_id|_session_id|sessionKey|__Secure-next-auth\.session-token)[=:：] ?[\"']?([A-Za-z0-9%._~+/:|-]{16,600})", "cookie"),
    Rule("url_credentials", ("://",), r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<user>[^\s:/?#@\"'<>`|\\]{0,80}):(?P<password>[^\s/?#@\"'<>`|]{1,200})@(?P<host>[^\s/?#\"'<>`|)，。]{1,200})", "url"),
    Rule("url_credentials", ("://",), r"(?<![A-Za-z0-9+.-])(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|mssql|sqlserver|clickhouse)(?:\+\w{1,12})?://(?P<user>[^\s:/?@\"'<>`|\\]{0,80}):(?P<password>[^\s@\"'<>`|]{1,120}(?:@[^\s@\"'<>`|/]{1,60})?)@(?P<host>[A-Za-z0-9_.\-\[\]]{1,200})", "url"),
    Rule("session_cookie", ("s%3A",), r"=s%3A([A-Za-z0-9_-]{20,64}(?:\.[A-Za-z0-9%+/_-]{3,80})?)", "random"),
    Rule("url_token", ("token=", "key=", "secret=", "Token=", "Key=", "TOKEN=", "KEY=", "auth=", "password=", "pwd="), r"(?i)[?&;](?:[a-z_.-]{0,20}(?:token|api_?key|secret|auth|password|pwd|app_?key|access_?key))=([A-Za-z0-9._~%+/-]{16,400})", "random"),
    Rule("command_password", ("curl", "http ", "wget", "https "), r"(?:curl|wget|https?|xh)(?=[ \t])[^\n]{0,300}?[ \t](?:-u|--user|-a|--auth|--proxy-user|-U)[ =]{0,2}[\"']?(?P<user>[^\s:\"'`]{1,80}):(?P<password>[^\s\"'`]{4,200})", "command"),
    Rule("command_password", ("login", "mysql", "sshpass", "redis-cli", "ldap", "mongo", "skopeo", "htpasswd", "rabbitmq", "smb", "podman", "lftp", "xfreerdp", "7z", "zip", "unzip", "svn", "helm", "az ", "oc "),
         r"(?:docker|podman|helm|skopeo|oc|az|mongo(?:sh|dump|export|restore)?|mysql(?:dump|admin)?|mariadb|sshpass|redis-cli|ldap\w{3,10}|xfreerdp|svn|lftp|7z|7za|zip|unzip)(?=[ \t])[^\n]{0,200}?[ \t](?:-p[ =]?|--pass(?:word)?[ =]|-a[ ]|-w[ ]|/p:|-P[ ])[\"']?(?P<password>[^\s\"'`]{4,200})", "command"),
    Rule("command_password", ("htpasswd", "add_user", "change_password", "chpasswd", "smbclient", "net use", "mc ", "--from-literal", "-passin", "pass:"),
         r"(?:htpasswd[ \t][^\n]{0,80}-\w*b\w*[ \t]+\S{1,80}[ \t]+\S{1,40}[ \t]+|(?:add_user|change_password)[ \t]+\S{1,40}[ \t]+|smbclient[^\n]{0,120}-U[ \t]+[\"']?\S{1,40}?%|net use[^\n]{0,120}/user:\S{1,60}[ \t]+|net use[^\n]{0,120}?[ \t](?=[^\s/]{6,100}[ \t]+/user:)|mc[ \t]+(?:config|alias)[^\n]{0,120}[ \t]\S{3,60}[ \t]+|--from-literal[= ][\"']?[\w.-]{0,40}=|(?<![\w-])pass:)[\"']?(?P<password>[^\s\"'`|]{6,200})", "command"),
    Rule("command_password", ("net user", "openssl"), r"(?:net user[ \t]+(?!/)\S{1,40}[ \t]+(?!/)|openssl[ \t][^\n]{0,120}?[ \t]-k[ \t]+)[\"']?(?P<password>[^\s\"'`]{4,200})", "command"),
    Rule("command_password", ("chpasswd",), r"echo[ \t]+[\"']?[\w-]{1,32}:(?P<password>[^\s\"'`|]{4,100})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd", "command"),
    Rule("command_password", ("ipmitool", "mosquitto_", "sqlcmd", "evil-winrm", "rdesktop", "cqlsh", "influx", "clickhouse-client", "bcp "),
         r"(?:ipmitool|mosquitto_\w{3,5}|sqlcmd|evil-winrm|rdesktop|cqlsh|influx|clickhouse-client|bcp)(?=[ \t])[^\n]{0,200}?[ \t](?:-[pP][ =]?|--?pass(?:word)?[ =])[\"']?(?P<password>[^\s\"'`]{4,200})", "command"),
    Rule("command_password", ("nmcli", "wpa_passphrase", "netsh", "cmdkey", "sqlplus", "ConvertTo-SecureString", "plink", "pscp"),
         r"(?:nmcli[ \t][^\n]{0,120}?password[ \t]+|wpa_passphrase[ \t]+\S{1,40}[ \t]+|netsh[ \t][^\n]{0,120}?key=|cmdkey[ \t][^\n]{0,120}?/pass:|sqlplus[ \t]+[\w.-]{1,40}/|ConvertTo-SecureString[ \t]+(?:-String[ \t]+)?|(?:plink|pscp)[ \t][^\n]{0,120}?-pw[ \t]+)[\"']?(?P<password>[^\s\"'`@]{4,200})", "command"),
    Rule("network_password", ("snmp", "SNMP"), r"(?i)snmp(?:-server community|(?:walk|get|set|bulkwalk)[ \t][^\n]{0,60}?-c)[ \t]+[\"']?(?P<password>[^\s\"'`]{6,100})", "command"),
    Rule("network_password", ("password ", "secret ", "key "), r"(?i)(?<![\w-])(?:password|secret|key-string|key)[ \t]+(?:0|7)[ \t]+(?P<password>[^\s\"'`]{6,100})", "command"),
    Rule("network_password", ("radius", "tacacs", "RADIUS", "TACACS"), r"(?i)(?:radius|tacacs)(?:-server)?[ \t][^\n]{0,80}?(?<![\w-])key[ \t]+(?:[07][ \t]+)?(?P<password>[^\s\"'`]{6,100})", "command"),
    Rule("terraform_default", ("variable",), r"(?i)variable[ \t]{1,4}\"[^\"\n]{0,60}(?:password|secret|token|passwd|key)[^\"\n]{0,20}\"\s{0,4}\{[^{}]{0,400}?default\s{0,12}=\s{0,4}\"(?P<password>[^\"\n]{4,200})\"", "command"),
    Rule("url_credentials", ("jdbc:oracle",), r"jdbc:oracle:\w{2,5}:(?P<user>[\w.-]{1,40})/(?P<password>[^\s@\"'/]{3,100})@/{0,2}(?P<host>[^\s\"'/]{1,200})", "url"),
    Rule("sql_password", ("IDENTIFIED", "identified", "PASSWORD", "password"), r"(?i)(?:identified[ \t]{1,4}(?:with[ \t]{1,4}\S{1,40}[ \t]{1,4})?by|(?:role|user|login)[^\n;]{1,100}?password[ =]|password[ \t]{0,4}\()[ \t]{0,4}[\"'](?P<password>[^\"'\n]{4,120})[\"']", "command"),
    Rule("code_credentials", ("auth", "Auth", "login(", "Credential"), r"(?:auth[ ]?=[ ]?|login|BasicAuth|Credentials?)\([ \t]{0,4}[\"'][^\"'\n]{1,80}[\"'][ \t]{0,4},[ \t]{0,4}[\"'](?P<password>[^\"'\n]{4,120})[\"']", "command"),
    Rule("account_password", ("root", "admin", "Admin", "ubuntu", "postgres", "sa ", "sa:", "sa/"),
         r"(?<![\w.@-])(?:root|[Aa]dmin(?:istrator)?|ubuntu|postgres|sa)(?:@[\w.-]{3,60})?[`\"']?[ \t]{0,3}[:：/|#＃，,、]{1,2}[ \t]{0,3}[`\"']?(?P<password>[!-~]{8,60})", "account"),
    Rule("netrc", ("machine", "default"), r"(?:machine[ \t]+\S{1,120}|default)\s{1,8}login\s{1,8}\S{1,120}\s{1,8}password\s{1,8}(?P<password>\S{4,200})", "command"),
    Rule("pgpass", (":",), r"(?m):(?:[1-9][0-9]{1,4}|\*):(?=[\w.*:-]{0,100}[G-Zg-z_*])[\w.*-]{1,60}:[\w.-]{1,60}:(?P<password>[!-9;-~]{6,120})(?=[ \t`]{0,4}(?:$|[^\x00-\x7f]))", "command"),
    Rule("wireguard_key", ("Key", "key"), r"(?i)(?:PrivateKey|PresharedKey|private[ _-]key|preshared[ _-]key)[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?([A-Za-z0-9+/]{42}[A-Za-z0-9+/=]{2})(?![A-Za-z0-9+/=])", "body", "[A-Za-z0-9+/]{42}"),
    Rule("ipsec_psk", ("PSK",), r"(?m)(?::[ \t]{0,4}|(?<![A-Za-z]))PSK[ \t]{1,4}[\"'](?P<password>[^\"'\n]{6,120})[\"']", "command"),
    Rule("xml_rsa_key", ("<RSAKeyValue",), r"<RSAKeyValue>[^\0]{0,3000}?<D>([A-Za-z0-9+/=\s]{40,800})", "body"),
)  # fmt: skip


def _packed(value: str) -> str:
    return value.replace("-", "").replace(" ", "")


def _is_random_token(value: str) -> bool:
    return is_token_body(value) and is_random(value.replace(".", ""), 12, uuid=True)


def _is_document_number(value: str) -> bool:
    return len(set(value)) > 3 and "123456" not in value


def _is_social_security_number(value: str) -> bool:
    return _packed(value) not in {"123456789", "078051120", "219099999", "111223333"}


def _is_identity_number(value: str) -> bool:
    return secret_numbers.is_chinese_id(_packed(value))


def _is_card_number(value: str) -> bool:
    return secret_numbers.is_card(_packed(value))


def _is_random_letters(value: str) -> bool:
    return is_token_body(value) and wordiness(value) < _WORDLESS


_WORDLESS: Final = 0.4
CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "body": is_token_body,
    "random": _is_random_token,
    "letters": _is_random_letters,
    "none": bool,
    "number": _is_document_number,
    "ssn": _is_social_security_number,
    "chinese_id": _is_identity_number,
    "taiwan_id": secret_numbers.is_taiwan_id,
    "card": _is_card_number,
    "base58": secret_numbers.is_base58_check,
}
