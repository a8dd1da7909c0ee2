"""The fifty rows of the list of bad inputs, each by its number: a test of its own, or the tests that hold it.

Rows 31 to 33 (links, pipes and races) are about folders that are not in git. Content of a git vault is read from committed
objects, so that no file is opened at all.
"""

import ast
import base64
import codecs
import collections
import json
import os
import random
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import pytest
from dagster._core.test_utils import instance_for_test
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_graphql.schema import create_schema

from vault_memory.adapters.beneath import Changed, opened_root, read_file
from vault_memory.adapters.directory import DirectorySource
from vault_memory.adapters.git import GitVault
from vault_memory.adapters.store import Store
from vault_memory.defs.build import build_definitions
from vault_memory.defs.partitions import Names
from vault_memory.errors import BlobError, QueryError, StoreError
from vault_memory.ingest.sync import Synchronizer
from vault_memory.notes import secrets
from vault_memory.notes.model import EntryKind
from vault_memory.notes.paths import one_line
from vault_memory.query import search
from vault_memory.query.context import render
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.fixtures.vault import MakeVault
from vault_memory_tests.integration.ingest.test_sync import NOTE, rows
from vault_memory_tests.unit.query.results import hit, result

ROOT = Path(__file__).resolve().parents[1]
GITHUB = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
ROUTER = "sk-or-" + "v1-" + "9f3a61c7d20b84e5" * 4
PEM = (
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n"
    + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz\n" * 4
    + "-----END OPENSSH " + "PRIVATE KEY-----\n"
)  # fmt: skip
PASSWORD = "Xk9" + "#mQ2vLp7w"
PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"
HELD_ELSEWHERE = {
    12: ["integration/ingest/test_screening.py::test_row_12_a_late_scan_is_killed_at_the_budget",
         "integration/ingest/test_screening.py::test_row_12_a_crafted_line_of_100_kb_ends_in_time",
         "integration/ingest/test_screening.py::test_a_note_that_was_not_scanned_in_time_is_looked_at_again"],
    13: ["integration/ingest/test_screening.py::test_row_13_without_a_worker_nothing_is_indexed",
         "unit/notes/test_scanner.py::test_row_13_a_scanner_that_raises_lets_nothing_through",
         "unit/notes/test_exclusion.py::test_an_ignore_file_that_cannot_be_read_whole_holds_as_far_as_it_can",
         "integration/ingest/test_unreadable_rules.py::test_a_file_that_cannot_be_read_holds_new_notes",
         "integration/ingest/test_allowances.py::test_a_list_that_cannot_be_read_stops_the_run"],
    14: ["unit/notes/test_scanner.py::test_row_14_a_note_is_decoded_by_its_mark",
         "unit/notes/test_scanner.py::test_row_14_what_is_no_unicode_is_undecodable",
         "unit/notes/test_scanner.py::test_row_14_a_note_over_the_limit_is_too_large"],
    15: ["unit/notes/test_scanner.py::test_row_15_a_note_cannot_vouch_for_itself",
         "integration/ingest/test_allowances.py::test_a_list_inside_the_vault_is_refused"],
    16: ["unit/notes/test_exclusion.py::test_row_16_a_folder_rule_is_no_substring"],
    17: ["unit/notes/test_exclusion.py::test_row_17_a_folder_rule_holds_at_any_depth_and_in_any_spelling"],
    18: ["unit/notes/test_exclusion.py::test_row_18_a_rule_that_includes_or_does_not_parse_is_refused_by_its_number",
         "integration/ingest/test_unreadable_rules.py::test_a_refused_negation_lets_nothing_in_and_holds_nothing_back",
         "integration/ingest/test_unreadable_rules.py::test_sync_status_and_doctor_name_file_line_and_mend"],
    19: ["unit/notes/test_exclusion.py::test_row_19_a_crafted_glob_returns_at_once"],
    20: ["unit/notes/test_exclusion.py::test_row_20_a_privacy_key_excludes",
         "unit/notes/test_exclusion.py::test_row_20_a_private_tag_in_the_text_excludes"],
    21: ["unit/notes/test_scanner.py::test_row_21_unreadable_front_matter_that_may_be_private_is_quarantined"],
    23: ["unit/notes/test_exclusion.py::test_the_id_changes_with_everything_that_can_change_an_outcome",
         "integration/ingest/test_sync.py::test_new_rules_hide_before_any_run"],
    24: ["integration/ingest/test_sync.py::test_a_note_that_is_clean_again_is_released"],
    27: ["integration/adapters/test_embedding.py::test_redirects_are_not_followed"],
    28: ["unit/adapters/test_egress.py::test_refused", "unit/adapters/test_egress.py::test_loopback_needs_the_flag",
         "unit/adapters/test_egress.py::test_no_setting_allows_these",
         "integration/query/test_embed.py::test_proxies_of_the_environment_are_ignored"],
    29: ["integration/adapters/test_embedding.py::test_echoed_errors", "e2e/test_canary.py::test_no_canary_sings"],
    30: ["integration/adapters/test_embedding.py::test_lies", "integration/adapters/test_embedding.py::test_huge_body"],
    34: ["integration/adapters/test_git.py::test_every_name_is_listed_and_read",
         "e2e/test_hostile_vault.py::test_log_lines_stay_one_line_an_event"],
    35: ["integration/adapters/test_git.py::test_no_method_runs_anything",
         "e2e/test_hostile_vault.py::test_a_hostile_vault_runs_nothing"],
    36: ["integration/adapters/test_git.py::test_the_trap_works",
         "e2e/test_hostile_vault.py::test_a_hostile_vault_runs_nothing",
         "e2e/test_hostile_vault.py::test_an_object_that_is_missing_is_fetched_from_nowhere"],
    37: ["integration/adapters/test_git.py::test_called_from_a_hook_of_another_repository",
         "e2e/test_hostile_vault.py::test_a_hostile_vault_runs_nothing"],
    38: ["integration/adapters/test_git.py::test_a_repository_of_somebody_else",
         "integration/adapters/test_git.py::test_worktree_and_git_file",
         "integration/adapters/test_git.py::test_a_bare_repository_inside_a_work_tree_is_refused",
         "integration/adapters/test_git.py::test_kinds_and_other_files"],
    39: ["unit/notes/test_scanner.py::test_row_39_hostile_front_matter_is_refused_quickly"],
    40: ["unit/notes/test_frontmatter.py::test_what_no_note_needs_is_refused_at_once",
         "integration/adapters/test_migrations.py::test_bad_dsn_is_one_line_without_the_password",
         "e2e/test_canary.py::test_no_canary_sings"],
    41: ["unit/notes/test_scanner.py::test_row_41_what_the_database_cannot_store_is_unstorable",
         "e2e/test_hostile_vault.py::test_a_hostile_vault_runs_nothing"],
    42: ["integration/adapters/test_server.py::test_log_holds_no_values",
         "integration/adapters/test_server.py::test_server_is_set_up_as_documented"],
    45: ["unit/query/test_context.py::test_labelled_payloads_stay_inside",
         "unit/query/test_context.py::test_any_text_keeps_the_frame"],
    47: ["unit/query/test_context.py::test_a_budget_that_cannot_work_is_refused"],
    48: ["integration/query/test_cli.py::test_nothing_found_is_empty_and_fine",
         "unit/query/test_context.py::test_no_items_make_no_block"],
    49: ["integration/query/test_search.py::test_a_chunk_that_matches_a_secret_rule_is_withheld"],
    50: ["integration/query/test_cli.py::test_text_is_plain", "integration/query/test_cli.py::test_json_is_json"],
}  # fmt: skip


def names_in(path: Path) -> set[str]:
    """Return the names of the tests in a file, those in classes included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("row", [pytest.param(row, id=f"row_{row:02}") for row in HELD_ELSEWHERE])
def test_a_row_is_held_by_tests_elsewhere(row: int) -> None:
    """The named tests exist: renaming one away would leave its row without a guard."""
    for name in HELD_ELSEWHERE[row]:
        file, _, test = name.partition("::")
        assert test in names_in(ROOT / file), name


def test_every_row_has_a_number_here() -> None:
    """One to fifty, without a gap but for what is not built."""
    own = {int(name[9:11]) for name in names_in(Path(__file__)) if name.startswith("test_row_")}
    assert set(range(1, 51)) == own | HELD_ELSEWHERE.keys()


def found(text: str) -> set[str]:
    """Return the rules that match a text."""
    return {finding.rule for finding in secrets.scan(text)}


@pytest.mark.parametrize("after", ["，", "。", "）", ".", "**", "、", "』"])
@pytest.mark.parametrize("token", [GITHUB, ROUTER])
def test_row_01_a_token_before_punctuation(token: str, after: str) -> None:
    """A full stop of either script hides nothing."""
    assert found(f"用的是 {token}{after}然后部署")


@pytest.mark.parametrize(
    "shape", ["{}", "**{}**", "`{}`", "| name | {} |\n|---|---|\n", "> [!note] {}\n> more", "- [ ] {}", "[{}](x)"]
)
@pytest.mark.parametrize("token", [GITHUB, GITHUB.replace("_", "\\_"), f"**{GITHUB[:9]}**{GITHUB[9:]}"])
def test_row_02_a_token_in_markdown(shape: str, token: str) -> None:
    """Escapes, emphasis, code, tables, callouts."""
    assert found("text\n\n" + shape.format(token) + "\n")


def test_row_03_a_token_in_disguise() -> None:
    """Invisible signs, full-width letters, look-alikes, entities and tag characters; the view is named, not the text."""
    wide = "".join(chr(ord(sign) + 0xFEE0) for sign in GITHUB)
    tags = "".join(chr(0xE0000 + ord(sign)) for sign in GITHUB)
    cyrillic = GITHUB.replace("p", "р").replace("c", "с")
    entities = "".join(f"&#{ord(sign)};" for sign in GITHUB)
    for text in (
        *(sign.join((GITHUB[:12], GITHUB[12:])) for sign in "\u200b\u2060\u00ad"),
        wide,
        tags,
        cyrillic,
        entities,
    ):
        findings = secrets.scan(f"a\n\n{text}\n")
        assert findings, ascii(text[:30])
        assert {3} == {finding.line for finding in findings}
        assert all(finding.view.isascii() and len(finding.view) < 30 for finding in findings)


@pytest.mark.parametrize(
    "text",
    [f"{ROUTER[:30]}\n{ROUTER[30:]}", f"{ROUTER[:30]}\\\n{ROUTER[30:]}", f"{ROUTER[:30]}\n    {ROUTER[30:]}",
     f'key = "{ROUTER[:12]}" + "{ROUTER[12:]}"'],
)  # fmt: skip
def test_row_04_a_token_over_two_lines(text: str) -> None:
    """Wrapped, with a backslash or an indentation, and put together from pieces."""
    assert found(f"# Setup\n\n{text}\n")


def test_row_05_an_encoded_secret() -> None:
    """Base64 once and twice, and percent-encoding."""
    once = base64.b64encode(PEM.encode())
    assert found(once.decode())
    assert found(base64.b64encode(once).decode())
    assert found(quote("postgresql://admin:" + PASSWORD.replace("#", "x") + "@db7.harbour.net/prod", safe=""))


@pytest.mark.parametrize(
    "text",
    [f"密码：{PASSWORD}", f"密 码：{PASSWORD}", f"密碼: {PASSWORD}", f"口令：{PASSWORD}", f"密码：\n{PASSWORD}",
     f"| 用户 | 密码 |\n|---|---|\n| root | {PASSWORD} |"],
)  # fmt: skip
def test_row_06_a_chinese_label(text: str) -> None:
    """On one line, on the next, and as a table's column."""
    assert found(f"# 服务器\n\n{text}\n")


def test_row_07_a_mnemonic() -> None:
    """Plain, numbered and in a table; word lists that are no phrase stay clean."""
    words = PHRASE.split()
    assert found(f"wallet\n\n{PHRASE}\n")
    assert found("\n".join(f"{number}. {word}" for number, word in enumerate(words, 1)))
    assert found("| n | word |\n|---|---|\n" + "\n".join(f"| {n} | {word} |" for n, word in enumerate(words, 1)))
    assert not found("abandon ability about absence abstract absurd abuse accept access accident account accuse")
    assert not found("床 前 明 月 光 疑 是 地 上 霜 举 头 望 明 月 低 头 思 故 乡")


def test_row_08_a_private_key() -> None:
    """With its body; a mention of the header is talk."""
    assert found(PEM)
    assert not found("A file that starts with `-----BEGIN OPENSSH PRIVATE KEY-----` is a private key.\n")


def test_row_09_numbers_with_check_digits() -> None:
    """An identity number and a card number count by their check digits."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    body = "11010519491231002"
    right = "10X98765432"[sum(int(d) * w for d, w in zip(body, weights, strict=True)) % 11]
    assert found(f"身份证号：{body}{right}")
    assert not found(f"编号 {body}{'1' if right != '1' else '2'}")
    card = "622202020011223344"
    total = sum(sum(divmod(int(d) * (2 if i % 2 == 0 else 1), 10)) for i, d in enumerate(reversed(card)))
    assert found(f"银行卡：{card}{-total % 10}")
    assert not found(f"订单号 {card}{(-total + 3) % 10}")


@pytest.mark.parametrize(
    "text",
    ["YOUR_API_KEY", "api_key = sk-xxxxxxxxxxxxxxxx", "OPENAI_API_KEY=${OPENAI_API_KEY}", "password: <password>",
     "AKIAIOSFODNN7EXAMPLE", "密码：见 1Password", "凯撒密码：HELLO", "A password should be long."],
)  # fmt: skip
def test_row_10_a_placeholder(text: str) -> None:
    """Talk and placeholders are indexed."""
    assert not found(text)


def test_row_11_what_is_not_found_is_documented() -> None:
    """The residual risk is named where people look for it."""
    assert not found("The phrase of the safe is tangerine otter umbrella seven.\n")
    page = (ROOT.parent / "docs/security.md").read_text(encoding="utf-8").lower()
    for words in ("reversed", "plain words", "image"):
        assert words in page


def test_row_22_a_death_between_scan_and_commit(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note gains a secret and the writer dies in the transaction that takes it out: nothing of it is ever found."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    installation.vault.write("01_Projects/a.md", f"{NOTE}\nrollback token {GITHUB}\n")
    installation.vault.commit()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_audit", die)
        with pytest.raises(KeyboardInterrupt):
            installation.steps()

    assert GITHUB not in str(search("rollback token", settings=installation.settings).to_dict())
    assert "quarantined" == installation.steps()["01_Projects/a.md"].action
    assert () == search("rollback token", settings=installation.settings).items


def test_row_25_a_sensitive_note_moves(installation: Installation) -> None:
    """Moved and copied it is judged by its own bytes at the new place; what replaces it is indexed."""
    vault = installation.vault
    secret = f"# S\n\ntoken {GITHUB}\n"
    vault.write("01_Projects/s.md", secret)
    vault.write("01_Projects/clean.md", NOTE)
    vault.commit()
    installation.steps()
    vault.rename("01_Projects/s.md", "01_Projects/moved.md")
    vault.write("01_Projects/copy.md", secret)
    vault.rename("01_Projects/clean.md", "01_Projects/s.md")
    vault.commit()

    installation.steps()

    assert [("01_Projects/s.md",)] == rows(installation, "SELECT id FROM memory_primary")
    assert [("01_Projects/copy.md", "quarantined"), ("01_Projects/moved.md", "quarantined"),
            ("01_Projects/s.md", "indexed")] == rows(installation, "SELECT id, status FROM note_state ORDER BY id")  # fmt: skip


def test_row_26_a_prefix_is_no_pattern(installation: Installation) -> None:
    """Of ``a_b`` and ``aXb`` the one that is meant goes, and a filter finds the one that it names."""
    for folder in ("a_b", "aXb", "a%b"):
        installation.vault.write(f"01_Projects/{folder}/n.md", NOTE.replace("caches", folder * 3))
    installation.vault.commit()
    installation.steps()
    hits = search("paragraph", path="01_Projects/a_b/", settings=installation.settings).items
    assert {"01_Projects/a_b/n.md"} == {one.source for one in hits}
    installation.vault.delete("01_Projects/a_b/n.md")
    installation.vault.commit()

    installation.steps()

    assert [("01_Projects/a%b/n.md",), ("01_Projects/aXb/n.md",)] == rows(
        installation, 'SELECT id FROM memory_primary ORDER BY id COLLATE "C"'
    )


def test_row_31_links_of_a_git_vault_are_never_opened(make_vault: MakeVault, tmp_path: Path) -> None:
    """A link in the tree is skipped; folders outside git are not built, and the docs say so."""
    vault = make_vault()
    (tmp_path / "outside.md").write_text("outside")
    for name, target in (("key", "/etc/passwd"), ("proc", "/proc/self/environ"), ("loop", "loop.md"), ("out", "..")):
        (vault.path / f"{name}.md").symlink_to(target)
    vault.commit()
    assert {"symlink"} == {entry.kind.value for entry in GitVault.open(vault.path).tree(vault.head)}


def test_row_31_links_in_a_folder_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links to a key, the environment, a device, a folder, themselves: listed by name, never opened, no way in or out."""
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.md").write_text("outside")
    (folder / "inside/note.md").write_text(NOTE)
    targets = {"key": "/etc/passwd", "environ": "/proc/self/environ", "zero": "/dev/zero", "loop": "loop.md"}
    for name, target in targets.items():
        (folder / f"{name}.md").symlink_to(target)
    (folder / "escape\x1b[31m.md").symlink_to(tmp_path / "outside/secret.md")
    for name, target in (("way out", tmp_path / "outside"), ("up", ".."), ("self", "."), ("dir.md", "inside")):
        (folder / name).symlink_to(target)
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *args, **keys: (opened.append(os.fsdecode(path)), real(path, *args, **keys))[1]
    )
    source = DirectorySource.open(folder)
    entries = source.tree(source.head() or "")
    assert ["inside/note.md"] == [entry.path.id for entry in entries if entry.kind is EntryKind.FILE]
    assert {*(f"{name}.md" for name in targets), "escape\x1b[31m.md", "dir.md"} == {
        entry.path.id for entry in entries if entry.kind is EntryKind.SYMLINK
    }
    assert {str(folder), "inside", "note.md"} == set(opened)
    assert one_line("escape\x1b[31m.md").isprintable()


def test_row_32_hard_links_pipes_sockets_and_devices_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is opened by name; one that takes a note's place between listing and reading neither blocks nor is read."""
    (tmp_path / "outside.md").write_text("outside")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "note.md").write_text(NOTE)
    os.link(tmp_path / "outside.md", folder / "hard.md")
    os.mkfifo(folder / "pipe.md")
    monkeypatch.chdir(folder)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket.md")
    if os.geteuid() == 0:
        os.mknod(folder / "device.md", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    source = DirectorySource.open(folder)
    entries = {entry.path.id: entry for entry in source.tree(source.head() or "")}
    assert [NOTE.encode()] == [data for _, data in source.read([entries["note.md"].blob_id], 10_000)]
    kinds = {name: entry.kind for name, entry in entries.items()}
    assert (EntryKind.FILE, EntryKind.HARD_LINK) == (kinds.pop("note.md"), kinds.pop("hard.md"))
    assert {EntryKind.SPECIAL} == set(kinds.values())

    started = time.monotonic()
    for name in ("pipe.md", "socket.md", "hard.md", *(["device.md"] if "device.md" in entries else [])):
        (folder / name).replace(folder / "note.md")
        ((_, data),) = source.read([entries["note.md"].blob_id], 10_000)
        assert isinstance(data, BlobError), name
    assert started + 5 > time.monotonic()


def test_row_33_no_race_leads_out_of_a_folder(tmp_path: Path) -> None:
    """Another process swaps the note and its folder for links outside, as fast as it can; nothing of outside is read."""
    for name, text in (("folder/in/note.md", NOTE), ("outside/note.md", "outside")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    swapper = subprocess.Popen([sys.executable, "-c", _SWAPS], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        source = DirectorySource.open(tmp_path / "folder")
        seen: collections.Counter[bytes | None] = collections.Counter()
        with opened_root(source.path) as root:
            wanted = {NOTE.encode(), None}
            until = time.monotonic() + 60  # a busy machine may not let the other process run at once
            while seen.total() < 60_000 or (wanted - seen.keys() and time.monotonic() < until):
                try:
                    seen[read_file(root, b"in/note.md", 10_000)[0]] += 1
                except Changed:
                    seen[None] += 1
        assert swapper.poll() is None
    finally:
        swapper.kill()
        swapper.communicate()
    assert wanted == set(seen)


_SWAPS = """
import os
print("ready", flush=True)
while True:
    os.symlink("../../outside/note.md", "folder/in/link")
    os.rename("folder/in/note.md", "folder/in/aside")
    os.rename("folder/in/link", "folder/in/note.md")
    os.rename("folder/in/aside", "folder/in/note.md")
    os.rename("folder/in", "folder/aside")
    os.symlink("../outside", "folder/in")
    os.unlink("folder/in")
    os.rename("folder/aside", "folder/in")
"""


def test_row_33_the_work_tree_is_not_read(make_vault: MakeVault) -> None:
    """No race: content comes from committed objects, whatever is done to the files meanwhile."""
    vault = make_vault(files={"01_Projects/a.md": NOTE})
    (vault.path / "01_Projects/a.md").unlink()
    (vault.path / "01_Projects/a.md").symlink_to("/etc/passwd")
    opened = GitVault.open(vault.path)
    (entry,) = opened.tree(vault.head)
    assert [(entry.blob_id, NOTE.encode())] == list(opened.read([entry.blob_id], 10_000))


@pytest.mark.parametrize("read_only", [True, False])
def test_row_43_a_read_only_web_page_launches_nothing(tmp_path: Path, *, read_only: bool) -> None:
    """What a foreign page could send is refused if the webserver was started with --read-only; control: else not."""
    with (
        instance_for_test(temp_dir=str(tmp_path)) as instance,
        WorkspaceProcessContext(instance, EmptyWorkspaceTarget(), read_only=read_only) as process,
    ):
        context = process.create_request_context()
        for mutation in ('deletePipelineRun(runId: "x")', "reloadWorkspace"):
            answer = create_schema().execute(f"mutation {{ {mutation} {{ __typename }} }}", context_value=context)
            (returned,) = answer.data.values()
            assert read_only == (returned["__typename"] == "UnauthorizedError"), mutation
        for name in ("launch_pipeline_execution", "launch_pipeline_reexecution", "launch_partition_backfill"):
            assert read_only != context.permissions[name].enabled, name


def test_row_44_no_run_configuration_takes_a_secret() -> None:
    """The resource has no field to put a key into, and a run that brings one is refused."""
    names = Names()
    job = build_definitions(names).resolve_job_def(names.sync_job)
    given = {"resources": {names.resource: {"config": {"api_key": "sk-canary", "dsn": "postgresql://u:p@h/d"}}}}
    with pytest.raises(dg.DagsterInvalidConfigError):
        job.execute_in_process(run_config=given, raise_on_error=True)


@pytest.mark.parametrize("text", ["A" * 200_000, "<" * 200_000, "word " * 50_000, "字" * 100_000])
@pytest.mark.parametrize("max_chars", [512, 2_500])
def test_row_46_an_endless_hit(text: str, max_chars: int) -> None:
    """The frame is closed, the length holds, and the cut is marked."""
    block = render(result(hit(text=text)), max_chars)
    assert len(block) <= max_chars
    assert block.endswith("</retrieved_context>\n")
    items = [json.loads(line) for line in block.split("\n")[2:-2]]
    assert all("…" in item["text"] or "truncated" in str(item) for item in items)


def test_row_49_a_stale_row_is_reported_by_the_next_sync(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader cannot write, so it withholds; the sync after an upgrade of the rules writes the audit line."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    rows(installation, f"UPDATE memory_chunk SET content = content || ' {GITHUB}' RETURNING 1")
    rows(installation, f"UPDATE memory_primary SET content = content || ' {GITHUB}' RETURNING 1")
    assert GITHUB not in str(search("rollback", settings=installation.settings).to_dict())
    rows(installation, "UPDATE sync_state SET ruleset_id = 'an older one' RETURNING 1")

    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        synchronizer.put_in_force()
        assert [("01_Projects/a.md", "quarantined")] == rows(installation, "SELECT id, action FROM memory_secure_audit")
        assert [] == rows(installation, "SELECT id FROM memory_primary")
    with Synchronizer.open(installation.settings) as synchronizer:
        assert "released" == walk(synchronizer)["01_Projects/a.md"].action


def test_row_40_a_refused_statement_shows_no_row(installation: Installation) -> None:
    """Class, sqlstate and constraint; neither message nor detail of PostgreSQL."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    with Synchronizer.open(installation.settings) as synchronizer:
        for statement, values in (
            ("INSERT INTO memory_term VALUES (%s, 0)", ["7"]),
            ("UPDATE memory_primary SET title = NULL", []),
            ("SELECT %s::timestamptz", ["canary-words"]),
            ("SELECT %s", ["canary-\0words"]),
        ):
            with pytest.raises(StoreError, match=r"sqlstate \w+") as caught, synchronizer.store.transaction():
                synchronizer.store._connection.execute(statement, values)
            assert caught.value.__suppress_context__
            assert "canary" not in str(caught.value)
            assert "paragraph" not in str(caught.value)


def test_row_14_an_utf16_note_is_searched_for_secrets_too(installation: Installation) -> None:
    """End to end: decoded by its mark, then judged."""
    installation.vault.write("01_Projects/u.md", codecs.BOM_UTF16_LE + NOTE.encode("utf-16-le"))
    installation.vault.write("01_Projects/s.md", codecs.BOM_UTF16_LE + f"token {GITHUB}".encode("utf-16-le"))
    installation.vault.commit()
    outcomes = installation.steps()
    assert ("added", "quarantined") == (outcomes["01_Projects/u.md"].action, outcomes["01_Projects/s.md"].action)


def test_row_47_a_budget_below_the_frame() -> None:
    """The smallest block is 512 characters."""
    with pytest.raises(QueryError, match="512"):
        render(result(hit()), random.Random(1).randrange(0, 512))
