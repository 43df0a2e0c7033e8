"""Uploads a folder to the Hugging Face Hub with huggingface_hub. `robocache push` runs it.

The script reads a job as JSON from stdin and writes its answer as one line of JSON to stdout.
"""

import sys

sys.path[:] = [p for p in sys.path if p]  # do not import from the working folder
import hashlib
import json
import os
import random
import time

answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # output of libraries goes to stderr


def send_answer(**kw):
    answer.write(json.dumps(kw) + "\n")
    answer.flush()
    sys.exit(0)


def send_error(kind, msg, hint="", **where):
    send_answer(error={"class": kind, "msg": msg, "hint": hint, "where": where})


job = json.load(sys.stdin)
try:
    import huggingface_hub  # noqa: F401
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.hf_api import RepoFile
except ImportError as e:
    send_error(
        "unsupported",
        "push uses the Python package huggingface_hub (0.26 or later), "
        f"which {sys.executable} lacks ({e})",
        "pip install -U huggingface_hub, or name another Python: --python",
    )

api = HfApi(library_name="robocache")
repo = {"repo_id": job["repo"], "repo_type": "dataset"}
local = {f["path"]: f["size"] for f in job["files"]}
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


def status_code(e):
    return getattr(getattr(e, "response", None), "status_code", None)


def is_temporary(e):
    """Returns whether a retry may succeed: a temporary status, or a network failure."""
    return (
        status_code(e) in TEMPORARY
        if isinstance(e, HfHubHTTPError)
        else type(e).__module__.split(".")[0] in ("httpx", "httpcore", "requests", "urllib3")
        or isinstance(e, ConnectionError)
    )


def with_retries(do):
    for n in range(1, 7):
        try:
            return do()
        except Exception as e:
            if not is_temporary(e) or n == 6 or job["dry_run"]:
                raise
            asked = getattr(getattr(e, "response", None), "headers", {}).get("Retry-After", "")
            time.sleep(
                (float(asked) if asked.isdigit() else 0) + random.random() * job["backoff"] * 2**n
            )


def has_same_bytes(remote, path):
    """Returns whether a file on the Hub has the same bytes as the local file."""
    if remote.size != local[path]:
        return False
    h, want = (
        (hashlib.sha256(), remote.lfs.sha256)
        if remote.lfs
        else (hashlib.sha1(b"blob %d\0" % remote.size), remote.blob_id)
    )
    with open(os.path.join(job["folder"], path), "rb") as f:
        while b := f.read(1 << 20):
            h.update(b)
    return h.hexdigest() == want


def compare_files(commit):
    """Returns the files to upload and the files to delete."""
    tree = (
        {
            f.path: f
            for f in with_retries(
                lambda: list(api.list_repo_tree(**repo, revision=commit, recursive=True))
            )
            if isinstance(f, RepoFile)
        }
        if commit
        else {}
    )
    return sorted(p for p in local if p not in tree or not has_same_bytes(tree[p], p)), sorted(
        p for p in tree if p not in local and p != ".gitattributes"
    )


def branch_commit():
    info = with_retries(lambda: api.repo_info(**repo, revision=job["branch"]))
    if job["private"] and info.private is False:
        send_error(
            "misuse",
            "the dataset is there, and public",
            "make it private on the Hub, or push without --private",
        )
    return info.sha


def push():
    if not job["dry_run"] and not get_token():
        send_error(
            "misuse", "there is no token of the Hugging Face Hub", "hf auth login, or HF_TOKEN"
        )
    commit = None
    try:
        commit = branch_commit()
    except RevisionNotFoundError:
        if job["private"] and with_retries(lambda: api.repo_info(**repo)).private is False:
            send_error(
                "misuse",
                "the dataset is there, and public",
                "make it private on the Hub, or push without --private",
            )
        if not job["dry_run"]:
            with_retries(lambda: api.create_branch(**repo, branch=job["branch"], exist_ok=True))
            commit = branch_commit()
    except RepositoryNotFoundError:
        if not job["dry_run"]:
            with_retries(
                lambda: api.create_repo(**repo, private=job["private"] or None, exist_ok=True)
            )
            if job["branch"] != "main":
                with_retries(lambda: api.create_branch(**repo, branch=job["branch"], exist_ok=True))
            commit = branch_commit()
    add, gone = compare_files(commit)
    out = {
        "repo": job["repo"],
        "branch": job["branch"],
        "commit": commit,
        "added": add,
        "deleted": gone,
        "bytes": sum(local[p] for p in add),
        "tag": job["tag"] or None,
    }
    if job["dry_run"]:
        return out
    if add or gone:
        work = [CommitOperationAdd(p, os.path.join(job["folder"], p)) for p in add]
        # huggingface_hub does not upload files again that the Hub already has
        with_retries(
            lambda: api.preupload_lfs_files(
                **repo, additions=work, revision=job["branch"], free_memory=False
            )
        )
        ops = work + [CommitOperationDelete(p, is_folder=False) for p in gone]

        def send():
            try:
                return api.create_commit(
                    **repo,
                    operations=ops,
                    commit_message=job["message"],
                    revision=job["branch"],
                    parent_commit=commit,
                ).oid
            except HfHubHTTPError as e:
                now = branch_commit() if status_code(e) in (409, 412) else commit
                if now != commit and compare_files(now) == ([], []):
                    return now  # an earlier attempt created the commit
                raise

        out["commit"] = with_retries(send)
        left = compare_files(out["commit"])
        if left != ([], []):
            send_error(
                "temporary",
                f"the Hub does not hold what was sent: {', '.join([*left[0], *left[1]][:5])}",
                "push again",
            )
    if job["tag"]:
        old = next(
            (
                t.target_commit
                for t in with_retries(lambda: api.list_repo_refs(**repo)).tags
                if t.name == job["tag"]
            ),
            None,
        )
        if old != out["commit"]:
            if old:
                with_retries(lambda: api.delete_tag(**repo, tag=job["tag"]))
            with_retries(
                lambda: api.create_tag(
                    **repo, tag=job["tag"], revision=out["commit"], exist_ok=True
                )
            )
    return out


try:
    send_answer(result=push())
except HFValidationError as e:
    send_error("misuse", str(e).splitlines()[0], "owner/name")
except HfHubHTTPError as e:
    code, said = status_code(e), (getattr(e, "server_message", None) or "").splitlines()[:1]
    msg = f"the Hub answers {code}" + (f": {said[0][:200]}" if said else "")
    if code in (409, 412):
        send_error(
            "temporary",
            f"the dataset was changed by another commit ({msg})",
            "push again",
            status=code,
        )
    if code in (401, 403):
        send_error(
            "misuse",
            f"the Hub denies access ({msg})",
            "the token is missing, wrong or expired, or may not write there: "
            "hf auth login, or HF_TOKEN",
            status=code,
        )
    send_error(
        "temporary" if is_temporary(e) else "not_found" if code == 404 else "misuse",
        msg,
        "try again later" if is_temporary(e) else "",
        status=code,
    )
except OSError as e:
    if not is_temporary(e):
        send_error(
            "temporary" if e.errno is None else "not_found",
            f"{type(e).__name__}: {e.strerror or 'the network failed'}",
            "try again",
        )
    send_error(
        "temporary",
        f"the Hub cannot be reached ({type(e).__name__})",
        "check the network and HF_ENDPOINT",
    )
except Exception as e:
    if not is_temporary(e):
        raise
    send_error(
        "temporary",
        f"the Hub cannot be reached ({type(e).__name__})",
        "check the network and HF_ENDPOINT",
    )
