"""Measure the secret scanner on the labelled cases and on crafted notes.

    VAULT_MEMORY_TEST_DATA=/path/to/data python benchmarks/secret_rules.py

Prints recall and precision, whole and by kind and language, milliseconds a note, and the worst crafted
100 kB notes. Times are those of the processor, so that other work on the machine does not count. Exits 1 if recall or precision is below 0.97, the median above 5 ms or a crafted note above 3 s.
Prints kinds and numbers only: never a text.
"""

import base64
import gzip
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from vault_memory.notes.secrets import RULES_VERSION, scan

BAR = 0.97
MAX_MEDIAN_MS = 5.0
MAX_CRAFTED_SECONDS = 3.0
SIZE = 100_000


def crafted() -> dict[str, str]:
    """Give notes made to be slow, each about 100 kB."""

    def fill(unit: str) -> str:
        return (unit * (SIZE // len(unit) + 1))[:SIZE]

    deep = "x" * 40_000
    for _ in range(3):
        deep = base64.b64encode(deep.encode()).decode()
    units = [
        "password=", "password: ", "password is ", "secret_key_", "token ", 'api_key = "', "eyJ", "eyJa.", "https://a:", "https://a:b@", "postgres://u:",
        "-----BEGIN ", "-----BEGIN RSA PRIVATE KEY-----\n", "密码", "密码：", "密码是", "口令为", "(", "[", '"', "'", "`", "*", "|", "| password ", "|密码|\n",
        "&#65;", "&amp;", "&", "%41", "%", "\\_", "\\", "\\\n", "a ", " ", "\t", "\n", "A", "Aa1", "0", "62", "4 ", "4-", "1101011990", "sk-", "ghp_", "sk-a-", "AKIA",
        "x_live_", "M.", "a.b.", ":", ":1:", "://", "=", "\u200b", "ａ", "\ufb03", "а", "<b>", "<td>", "<", "[[", "Cookie: a=", "curl -u ", "curl ", "docker login -p ",
        "recovery codes ", "2fa ", "助记词 ", "abandon ", "让 ", "kind: Secret\n  a: QUFB\n", "WIFI:", "PIN ", "user/password ", "password,", "password\n", "login ",
    ]  # fmt: skip
    texts = {json.dumps(unit, ensure_ascii=True): fill(unit) for unit in units}
    texts["deep base64"] = deep[:SIZE]
    texts["many base64 words"] = fill(base64.b64encode(b"just a plain sentence of no interest").decode() + " ")
    texts["wrapped base64"] = fill(base64.b64encode(b"one more plain sentence, still quite dull!").decode() + "\n")
    return texts


def main() -> int:
    """Run and print everything; give the exit status."""
    data = os.environ.get("VAULT_MEMORY_TEST_DATA")
    if not data:
        print("set VAULT_MEMORY_TEST_DATA to the folder of labelled cases", file=sys.stderr)
        return 2
    with gzip.open(Path(data) / "cases" / "secrets_dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    counts: dict[str, Counter[str]] = {}
    milliseconds = []
    for row in rows:
        started = time.process_time()
        found = bool(scan(row["text"]))
        milliseconds.append((time.process_time() - started) * 1000)
        if row["label"] is None:
            continue
        outcome = {(1, True): "tp", (1, False): "fn", (0, True): "fp", (0, False): "tn"}[row["label"], found]
        for key in ("all", f"language {row['lang']}", f"kind {row['kind']}"):
            counts.setdefault(key, Counter())[outcome] += 1
    print(f"rules version {RULES_VERSION}, {len(rows)} notes\n")
    print(f"{'':32} {'secret':>6} {'found':>6} {'clean':>6} {'flagged':>7}")
    for key, count in sorted(
        counts.items(), key=lambda item: (item[0] != "all", not item[0].startswith("language"), item[0])
    ):
        print(f"{key:32} {count['tp'] + count['fn']:6} {count['tp']:6} {count['tn'] + count['fp']:6} {count['fp']:7}")
    total = counts["all"]
    recall = total["tp"] / max(1, total["tp"] + total["fn"])
    precision = total["tp"] / max(1, total["tp"] + total["fp"])
    milliseconds.sort()
    median, late = milliseconds[len(milliseconds) // 2], milliseconds[int(len(milliseconds) * 0.95)]
    print(f"\nrecall {recall:.3f}, precision {precision:.3f} (want {BAR} each)")
    print(f"milliseconds a note: median {median:.2f}, p95 {late:.2f}, max {milliseconds[-1]:.2f}\n")
    slowest = []
    for name, text in crafted().items():
        started = time.process_time()
        scan(text)
        slowest.append((time.process_time() - started, name))
    slowest.sort(reverse=True)
    print(f"crafted notes of {SIZE // 1000} kB, the slowest ten of {len(slowest)}, seconds:")
    for seconds, name in slowest[:10]:
        print(f"  {seconds:6.3f}  {name}")
    good = recall >= BAR and precision >= BAR and median <= MAX_MEDIAN_MS and slowest[0][0] <= MAX_CRAFTED_SECONDS
    print("\nwithin the bar" if good else "\nBELOW THE BAR")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
