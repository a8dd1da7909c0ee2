"""A vault whose repository is made to run programs: the commands from end to end (rows 34 to 37 of the bad inputs)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from vault_memory.query.search import search
from vault_memory_tests.e2e.test_commands import NOTE, command
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.vault import VaultRepo

ODD_NAMES = (
    "--upload-pack=touch x.md",
    "-rf.md",
    'q"uote$(touch x);.md',
    "new\nline.md",
    "\x1b[31mred.md",
    "<img src=x>.md",
    "$(id).md",
    "x'); DROP TABLE memory_primary; --.md",
)


def set_trap(vault: VaultRepo, folder: Path) -> Path:
    """Let every mechanism of git that runs a program leave a file in a folder, and return the folder."""
    sentinels = folder / "sentinels"
    sentinels.mkdir()

    def program(name: str) -> str:
        script = folder / f"{name}.sh"
        script.write_text(f"#!/bin/sh\ntouch '{sentinels}/{name}'\nexit 1\n")
        script.chmod(0o755)
        return str(script)

    hooks = folder / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        for place in (hooks, vault.path / ".git/hooks"):
            (place / hook).write_text(Path(program(f"hook-{hook}")).read_text())
            (place / hook).chmod(0o755)
    included = folder / "included"
    included.write_text(f'[gpg]\n\tprogram = {program("gpg")}\n[diff "evil"]\n\ttextconv = {program("textconv")}\n')
    for name, value in {
        "core.hooksPath": str(hooks),
        "diff.external": program("external"),
        "filter.evil.clean": program("clean"),
        "filter.evil.smudge": program("smudge"),
        "core.sshCommand": program("ssh"),
        "core.pager": program("pager"),
        "log.showSignature": "true",
        "credential.helper": program("credential"),
        "alias.ls-tree": f"!{program('alias')}",
        "alias.cat-file": f"!{program('alias')}",
        "include.path": str(included),
        "includeIf.gitdir:/.path": str(included),
        "core.editor": program("editor"),
        "sequence.editor": program("sequence-editor"),
        "core.askPass": program("askpass"),
        "core.gitProxy": program("git-proxy"),
        "core.alternateRefsCommand": program("alternate-refs"),
        "diff.evil.command": program("diff-command"),
        "filter.evil.process": program("filter-process"),
        "filter.evil.required": "true",
        "filter.lfs.clean": program("lfs-clean"),
        "filter.lfs.smudge": program("lfs-smudge"),
        "filter.lfs.process": program("lfs-process"),
        "merge.evil.driver": program("merge-driver"),
        "interactive.diffFilter": program("diff-filter"),
        "gpg.program": program("gpg"),
        "gpg.ssh.program": program("gpg-ssh"),
        "gpg.ssh.defaultKeyCommand": program("gpg-key"),
        "trailer.evil.command": program("trailer"),
        "uploadpack.packObjectsHook": program("pack-objects"),
        "submodule.evil.update": f"!{program('submodule-update')}",
        "pager.log": program("pager-log"),
        "pager.ls-tree": program("pager-ls-tree"),
        "protocol.ext.allow": "always",
        "extensions.partialClone": "evil",
        "remote.evil.url": f"ext::{program('remote')}",
        "remote.evil.promisor": "true",
        "remote.evil.uploadpack": program("uploadpack"),
        "url.ext::true.insteadOf": "https://",
        "core.attributesFile": str(folder / "attributes"),
        "diff.evil.textconv": program("textconv-of-the-vault"),
        "tar.evil.command": program("archive"),
        "mergetool.evil.cmd": program("mergetool"),
        "difftool.evil.cmd": program("difftool"),
        "browser.evil.cmd": program("browser"),
        "gpg.x509.program": program("gpg-x509"),
        "gc.recentObjectsHook": program("gc-hook"),
        "extensions.worktreeConfig": "true",
    }.items():
        vault.git("config", name, value)
    (folder / "attributes").write_text("* filter=evil diff=evil\n")
    (vault.path / ".git/info/attributes").write_text("*.md filter=lfs diff=evil\n")
    (vault.path / ".git/config.worktree").write_text(f"[core]\n\tfsmonitor = {program('fsmonitor-of-the-worktree')}\n")
    (vault.path / ".git/objects/info").mkdir(exist_ok=True)
    (vault.path / ".git/objects/info/alternates").write_text(f"{folder}/elsewhere/objects\n")
    with (vault.path / ".git/config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {program('fsmonitor')}\n")
    for file in sentinels.iterdir():
        file.unlink()
    return sentinels


def set_surroundings(folder: Path, sentinels: Path) -> dict[str, str]:
    """Return an environment in which every variable that makes git run or write something leaves a file in a folder."""
    script = folder / "surroundings.sh"
    script.write_text(f"#!/bin/sh\ntouch '{sentinels}/surroundings'\nexit 1\n")
    script.chmod(0o755)
    programs = folder / "exec-path"
    programs.mkdir()
    for name in ("git", "git-ls-tree", "git-rev-parse", "git-cat-file", "git-diff-tree", "git-log", "git-remote-ext"):
        (programs / name).write_text(script.read_text())
        (programs / name).chmod(0o755)
    named = ("GIT_SSH_COMMAND", "GIT_SSH", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PAGER", "PAGER", "GIT_EDITOR", "EDITOR", "VISUAL", "GIT_SEQUENCE_EDITOR", "GIT_EXTERNAL_DIFF")  # fmt: skip
    return {
        **dict.fromkeys(named, str(script)),
        "GIT_EXEC_PATH": str(programs),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(script),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{script}'",
        "GIT_CONFIG_GLOBAL": str(folder / "included"),
        "GIT_TEMPLATE_DIR": str(programs),
        "GIT_TRACE": f"{sentinels}/trace",
        "GIT_TRACE2": f"{sentinels}/trace2",
        "GIT_TRACE_PACKET": f"{sentinels}/packets",
        "GIT_ALLOW_PROTOCOL": "ext:ssh:file",
    }


def state_of(folder: Path) -> dict[str, int]:
    """Return when each file below a folder was written last."""
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("from_a_hook", [False, True])
def test_a_hostile_vault_runs_nothing(installation: Installation, tmp_path: Path, *, from_a_hook: bool) -> None:
    """Sync, status, query and get touch no sentinel and write nothing in the vault, also when git called them."""
    vault = installation.vault
    vault.write("01_Projects/a.md", NOTE)
    vault.write(".gitattributes", "*.md diff=evil filter=evil merge=evil\n*.bin filter=lfs diff=lfs merge=lfs -text\n")
    vault.write("01_Projects/a.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    vault.write(".gitmodules", '[submodule "evil"]\n\tpath = evil\n\turl = ext::false\n\tupdate = !false\n')
    for name in ODD_NAMES:
        vault.write(f"01_Projects/{name}", NOTE.replace("caches", f"topic {len(name)}"))
    vault.commit()
    sentinels = set_trap(vault, tmp_path)
    # Of the same size: git has to ask the filter whether the file has changed.
    vault.write("01_Projects/a.md", NOTE.replace("caches", "CACHES"))
    before = state_of(vault.path)
    environment = dict(installation.environment)
    if from_a_hook:
        outer = VaultRepo.create(tmp_path / "outer")
        environment |= {"GIT_DIR": str(outer.path / ".git"), "GIT_INDEX_FILE": str(outer.path / ".git/index"),
                        "GIT_WORK_TREE": str(outer.path), **set_surroundings(tmp_path, sentinels)}  # fmt: skip

    done = command(environment, "-v", "sync", "--json")

    assert 0 == done.returncode, done.stderr
    assert 1 + len(ODD_NAMES) == json.loads(done.stdout)["added"]
    found = command(environment, "query", "paragraph caches", "--format", "json", "-k", "20")
    items = {item["source"]: item for item in json.loads(found.stdout)["items"]}
    assert "caches" in items["01_Projects/a.md"]["text"]
    for arguments in (["status"], ["query", "paragraph caches"], ["query", "get", "01_Projects/a.md"]):
        done = command(environment, *arguments)
        assert 0 == done.returncode, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
    assert [] == [file.name for file in sentinels.iterdir()]
    assert before == state_of(vault.path)


def test_an_object_that_is_missing_is_fetched_from_nowhere(installation: Installation, tmp_path: Path) -> None:
    """A partial clone names a remote to fetch from, and a remote can be a program: the sync fails, and runs nothing."""
    vault = installation.vault
    vault.write("01_Projects/a.md", NOTE)
    vault.write("01_Projects/gone.md", NOTE.replace("caches", "absence"))
    vault.commit()
    blob = vault.git("rev-parse", "HEAD:01_Projects/gone.md").strip()
    sentinels = set_trap(vault, tmp_path)
    (vault.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    done = command(installation.environment, "sync", "--json")

    assert 0 != done.returncode
    assert [] == [file.name for file in sentinels.iterdir()]
    # Control: git by itself would have asked the remote.
    subprocess.run(["git", "cat-file", "-p", blob], cwd=vault.path, check=False, capture_output=True,
                   env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}, timeout=60)  # fmt: skip
    assert "remote" in {file.name for file in sentinels.iterdir()}


def test_the_trap_is_sharp(installation: Installation, tmp_path: Path) -> None:
    """Control: plain git status springs it."""
    vault = installation.vault
    vault.write("01_Projects/a.md", NOTE)
    vault.write(".gitattributes", "*.md diff=evil filter=evil\n")
    vault.commit()
    sentinels = set_trap(vault, tmp_path)
    vault.write("01_Projects/a.md", NOTE.replace("caches", "CACHES"))

    subprocess.run(["git", "status"], cwd=vault.path, check=False, capture_output=True,
                   env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}, timeout=60)  # fmt: skip

    assert {"fsmonitor", "fsmonitor-of-the-worktree"} & {file.name for file in sentinels.iterdir()}


def test_the_surroundings_are_sharp(installation: Installation, tmp_path: Path) -> None:
    """Control: the same variables do reach a plain git."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    sentinels = tmp_path / "sentinels"
    sentinels.mkdir()
    surroundings = set_surroundings(tmp_path, sentinels)
    del surroundings["GIT_EXEC_PATH"]  # with it nothing else is reached

    subprocess.run(["git", "status"], cwd=installation.vault.path, check=False, capture_output=True,
                   env={**os.environ, **surroundings}, timeout=60)  # fmt: skip

    assert {"surroundings", "trace", "trace2"} <= {file.name for file in sentinels.iterdir()}


def test_an_alternate_is_no_way_into_another_repository(installation: Installation, tmp_path: Path) -> None:
    """Of a repository that the vault's ``alternates`` names nothing is read that no tree of the vault names."""
    other = VaultRepo.create(tmp_path / "other")
    other.write("private.md", "canary-of-another-repository\n")
    other.commit()
    vault = installation.vault
    vault.write("01_Projects/a.md", NOTE)
    vault.commit()
    (vault.path / ".git/objects/info").mkdir(exist_ok=True)
    (vault.path / ".git/objects/info/alternates").write_text(f"{other.path}/.git/objects\n")

    outcomes = installation.steps()

    assert {"01_Projects/a.md": "added"} == {source: outcome.action for source, outcome in outcomes.items()}
    hits = search("canary-of-another-repository", settings=installation.settings).items
    assert not [hit for hit in hits if "canary-of-another" in hit.text]


def test_log_lines_stay_one_line_an_event(installation: Installation) -> None:
    """Row 34: with -v, names with line breaks and escape sequences make no line of their own and reach no terminal."""
    for name in ODD_NAMES:
        installation.vault.write(f"01_Projects/{name}", "token ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6\n")
    installation.vault.commit()

    done = command(installation.environment, "-v", "sync")

    assert 0 == done.returncode, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert {"INFO", "WARNING", "ERROR"} >= {line.split(" ")[0] for line in done.stderr.splitlines()}
    listed = command(installation.environment, "quarantine", "list")
    assert len(ODD_NAMES) == len(listed.stdout.splitlines())
    assert "\x1b" not in listed.stdout
