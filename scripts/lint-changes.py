#!/usr/bin/env python3
"""Checks how plainly the lines that changed since a commit are written.

usage: scripts/lint-changes.py [--files EXT] [BASE]

With --files it prints the changed files with an extension, such as .go, and checks nothing.

BASE is a commit. Without it: $CI_BASE, else the newest commit that is a day older than HEAD.
Checked are the lines of Go, Python, C and JavaScript files and of documents that were added since
BASE, and the subjects of the commits since BASE:

- at most 3 % of the comment lines and of the document lines use a construction that readers stumble
  over (CONSTRUCTIONS);
- at most 0.3 % of the lines of code are wider than 120 columns (code is formatted for 100 columns;
  raw strings may exceed it);
- no new unexported Go function has a name that fifteen other functions have already;
- at most 5 % of the commit subjects are longer than 72 characters.

The exit status is 1 if one of them fails.
"""

import argparse
import collections
import os
import re
import subprocess
import sys

CONSTRUCTIONS = re.compile(
    "|".join(
        [
            r"^(?:what|who|whoever|nobody|one that|of which)\b",
            r"\b(?:whoever|nobody)\b",
            r"\b(?:says?|tells?|told) (?:what|whether|which|how|that|why|where|if)\b",
            r"\b(?:lets?|letting) (?:it |them )?go\b",
            r"\b(?:given? back|goes on|put off|naps?|glances?|meanwhile|anew|afresh|on its way)\b",
            r"\bbeside (?:it|them|the|what|each|one|a)\b",
            r"\bstands? (?:at|in|for|behind|beside|there|where|still|alone)\b",
            r"\blies? (?:in|at|there|beside|on|where|within)\b",
            r"\b(?:is|are|was|were) (?:there|said|told|meant|wanted)\b",
            r"\b(?:hears? of|knows? (?:nothing|of|what)|brings?|takers?)\b",
            r"\bof (?:its|their) own\b",
        ]
    ),
    re.IGNORECASE,
)
CODE = (".go", ".py", ".c", ".h", ".cu", ".cuh", ".js")
LEFT_OUT = re.compile(r"(^|/)(testdata|third_party|vendor|docs/perf|docs/gpu)/|uPlot|\.min\.js$")
MARKED_SHARE = 0.03
WIDE_SHARE = 0.003
LONG_SUBJECT_SHARE = 0.05
WIDEST = 120
LONGEST_SUBJECT = 72
MOST_NAMESAKES = 15
PREDECLARED = ("init", "main")  # functions that each package or program may have


def git(*args: str) -> str:
    """Returns the output of a git command, which must succeed."""
    return subprocess.run(
        ["git", *args], check=True, capture_output=True, text=True, errors="replace"
    ).stdout


def default_base() -> str:
    """Returns $CI_BASE, or the newest commit that is a day older than HEAD."""
    if os.environ.get("CI_BASE"):
        return os.environ["CI_BASE"]
    day_before = int(git("log", "-1", "--format=%ct")) - 86400
    return git("rev-list", "-1", f"--before={day_before}", "HEAD").strip()


def added_lines(base: str):
    """Yields (file, line number, text) of each line added since base."""
    path, number = "", 0
    for line in git("diff", "-U0", "--no-color", base, "--").splitlines():
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else ""
        elif line.startswith("@@"):
            number = int(re.search(r"\+(\d+)", line)[1])
        elif line.startswith("+") and path:
            yield path, number, line[1:]
            number += 1


def comment_text(path: str, line: str) -> str:
    """Returns the text of a comment line or document line, or "" if line is neither."""
    text = line.strip()
    if path.endswith(".md"):
        return (
            "" if text.startswith(("|", "#", "<", "![", "```")) else text.lstrip("-*0123456789. ")
        )
    if path.endswith(".py"):
        return text[1:].strip() if text.startswith("#") else ""
    return text[2:].strip() if text.startswith("//") and not text.startswith("//go:") else ""


def is_generated(path: str) -> bool:
    """Reports whether the file's beginning states that a program wrote it."""
    try:
        with open(path, errors="replace") as file:
            return bool(re.search(r"Code generated|DO NOT EDIT", file.read(400)))
    except OSError:
        return True


def function_counts() -> collections.Counter:
    """Returns how many functions of the tree have each unexported name, tests left out."""
    listing = git("grep", "-hoE", r"^func (\([^)]*\) )?[a-z]\w*", "--", "*.go", ":!*_test.go")
    return collections.Counter(line.rsplit(" ", 1)[1] for line in listing.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", metavar="EXT")
    parser.add_argument("base", nargs="?", metavar="BASE")
    arguments = parser.parse_args()
    base = arguments.base or default_base()
    if not base:
        note = "lint-changes: skipped, the history has no commit that is a day older than HEAD"
        print(note, file=sys.stderr)
        return 0
    if arguments.files:
        for path in git("diff", "--name-only", "--diff-filter=d", base, "--").splitlines():
            wanted = path.endswith(arguments.files) and not LEFT_OUT.search(path)
            if wanted and not is_generated(path):
                print(path)
        return 0
    found = collections.defaultdict(list)  # faults by kind
    generated = {}
    comments = code = 0
    counts = function_counts()
    for path, number, line in added_lines(base):
        if not path.endswith((*CODE, ".md")) or LEFT_OUT.search(path):
            continue
        if path not in generated:
            generated[path] = is_generated(path)
        if generated[path]:
            continue
        if path.endswith(CODE):
            code += 1
            if (columns := len(line.expandtabs(4))) > WIDEST:
                found["wide"].append(f"{path}:{number}: {columns} columns, at most {WIDEST}")
        if text := comment_text(path, line):
            comments += len(text) >= 12
            if CONSTRUCTIONS.search(text):
                found["marked"].append(f"{path}:{number}: rewrite: {text[:100]}")
        name = re.match(r"func (?:\([^)]*\) )?([a-z]\w*)\(", line)
        if name and not path.endswith("_test.go") and name[1] not in PREDECLARED:
            namesakes = counts[name[1]] - 1
            if namesakes > MOST_NAMESAKES:
                note = f"{path}:{number}: {namesakes} other functions are called {name[1]}"
                found["names"].append(note)
    subjects = git("log", "--no-merges", "--format=%s", f"{base}..HEAD").splitlines()
    for subject in subjects:
        if len(subject) > LONGEST_SUBJECT:
            found["subjects"].append(f"commit subject of {len(subject)} characters: {subject}")
    allowed = {
        "marked": max(2, MARKED_SHARE * comments),
        "wide": WIDE_SHARE * code,
        "names": 0,
        "subjects": LONG_SUBJECT_SHARE * len(subjects),
    }
    failed = False
    for kind, faults in found.items():
        if len(faults) > allowed[kind]:
            print("\n".join(faults))
            failed = True
    summary = ", ".join(
        f"{kind} {len(found[kind])} (at most {int(allowed[kind])})" for kind in allowed
    )
    print(f"lint-changes: since {base[:12]}: {summary}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
