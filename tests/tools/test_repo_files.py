"""What the two tools show, how it is clipped, and what they keep to themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedmate.base.terminal import is_visible
from schedmate.llm.redact import Redactor
from schedmate.tools import Limits, RepoFiles, as_langchain


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_tree(tmp_path: Path) -> None:
    write(tmp_path, **{"b.py": "", "a__z.py": "", "a__b__c__d.py": "", "a0.py": ""})
    assert RepoFiles(tmp_path).file_tree() == (
        ".: 6 entries, 3 levels deep\na/\na/b/\na/b/c/\na/z.py\na0.py\nb.py\n"
        "[clipped: 1 directories above are not listed inside;"
        " call again with one of them as path]"
    )
    assert RepoFiles(tmp_path).file_tree("a/b/c", depth=1) == (
        "a/b/c: 1 entries, 1 levels deep\na/b/c/d.py"
    )


def test_a_file_by_line_numbers(tmp_path: Path) -> None:
    write(tmp_path, **{"t.py": "one\r\ntwo\rthree\n\x0cfour\u2028still four\n\nsix"})
    files = RepoFiles(tmp_path)
    assert files.file_read("t.py") == (
        "t.py: lines 1-6 of 6\n1| one\n2| two\n3| three\n4| \\x0cfour\\u2028still four\n5| \n6| six"
    )
    assert files.file_read("./t.py", 2, 2) == (
        "t.py: lines 2-3 of 6\n2| two\n3| three\n[clipped: for more, call again with start_line=4]"
    )
    lines = files.lines("t.py")
    assert lines is not None
    assert lines[3] == "\x0cfour\u2028still four"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "f: an empty file"),
        (b"\n", "f: lines 1-1 of 1\n1| "),
        (b"\xef\xbb\xbfa", "f: lines 1-1 of 1\n1| a"),
        ("größe".encode("utf-16"), "f: lines 1-1 of 1\n1| größe"),
        (b"gr\xf6\xdfe", "f: lines 1-1 of 1\n1| gr\ufffd\ufffde"),
        (b"\x7fELF\0\0", "error: f is a binary file of 6 bytes."),
    ],
    ids=["empty", "newline", "bom", "utf-16", "latin-1", "binary"],
)
def test_encodings(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "f").write_bytes(content)
    assert RepoFiles(tmp_path).file_read("f") == text


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda f: f.file_read("x.py"), "error: no such file: x.py."),
        (lambda f: f.file_read("t.py/x"), "error: t.py is a file, not a directory"),
        (lambda f: f.file_read("d"), "error: d is a directory, not a file; list it with"),
        (lambda f: f.file_read("."), "error: . is a directory"),
        (lambda f: f.file_read(""), "error: . is a directory"),
        (lambda f: f.file_tree("t.py"), "error: t.py is a file, not a directory; read it with"),
        (lambda f: f.file_tree("x"), "error: no such directory: x."),
        (lambda f: f.file_read("t.py", 9), "error: t.py has 1 lines that can be read, no 9th."),
    ],
)
def test_errors_are_a_sentence(tmp_path: Path, call: object, sentence: str) -> None:
    write(tmp_path, **{"t.py": "x", "d__y": ""})
    assert call(RepoFiles(tmp_path)).startswith(sentence)  # type: ignore[operator]


def test_odd_numbers_are_taken_as_the_nearest_good_ones(tmp_path: Path) -> None:
    write(tmp_path, **{"t.py": "a\nb\n"})
    files = RepoFiles(tmp_path)
    assert files.file_read("t.py", -5, -1).startswith("t.py: lines 1-1 of 2\n")
    assert files.file_read("t.py", 1, 10**30).startswith("t.py: lines 1-2 of 2\n")
    assert files.file_tree(depth=-1) == files.file_tree(depth=1)
    assert files.file_tree(depth=10**30) == files.file_tree(depth=8)


# -- limits


def test_every_clipping_is_announced(tmp_path: Path) -> None:
    write(tmp_path, **{"t.py": "\n".join(["x" * 30] * 20)})
    limits = Limits(lines=3, line_chars=10)
    assert RepoFiles(tmp_path, limits).file_read("t.py", 1, 100) == (
        "t.py: lines 1-3 of 20\n"
        + "".join(f"{n}| {'x' * 10}… [+20 characters]\n" for n in (1, 2, 3))
        + "[clipped: for more, call again with start_line=4]"
    )
    text = RepoFiles(tmp_path, Limits(chars=100)).file_read("t.py")
    assert text.startswith("t.py: lines 1-2 of 20\n")
    assert text.endswith("start_line=3]")
    text = RepoFiles(tmp_path, Limits(file_bytes=100)).file_read("t.py")
    assert text.startswith("t.py: lines 1-3 of 3\n")
    assert text.endswith("[clipped: the file has 619 bytes, only its first 100 can be read]")


def test_a_big_directory_does_not_hide_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, **{f"a__{n:03}": "" for n in range(50)}, **{"b__c__d": "", "z.py": ""})
    text = RepoFiles(tmp_path, Limits(entries=12, entries_per_directory=8)).file_tree()
    assert text == (
        ".: 12 entries, 3 levels deep\na/\n"
        + "".join(f"a/{n:03}\n" for n in range(8))
        + "b/\nb/c/\nz.py\n"
        "[clipped: a has 42 more entries]\n"
        "[clipped: 1 directories above are not listed inside;"
        " call again with one of them as path]"
    )


def test_a_slow_file_system_gives_what_there_is(tmp_path: Path) -> None:
    write(tmp_path, **{f"{n}__x": "" for n in range(5)})
    text = RepoFiles(tmp_path, Limits(seconds=0)).file_tree()
    assert "[clipped: . has 5 more entries]" in text


def test_a_hundred_thousand_files(tmp_path: Path) -> None:
    for number in range(100_000):
        os.close(os.open(tmp_path / f"{number:06}.pt", os.O_CREAT | os.O_WRONLY))
    (tmp_path / "train.py").write_text("")
    files = RepoFiles(tmp_path, Limits(seconds=60))
    assert files.file_tree().endswith("[clipped: . has 99,901 more entries]")
    assert len(files.file_tree()) < 5_000
    (tmp_path / ".gitignore").write_text("\n".join([*(f"run{n}*/" for n in range(99)), "*.pt"]))
    assert files.file_tree() == (
        ".: 2 entries, 3 levels deep\n.gitignore\ntrain.py\n[left out by .gitignore: 100,000]"
    )
    few = RepoFiles(tmp_path, Limits(names=1000)).file_tree()
    assert "has more than " in few or "left out by .gitignore: 1,000" in few


def test_sparse_files_of_ten_gigabytes(tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(10**10)
    with (tmp_path / "log").open("wb") as file:
        file.write(b"line\n" * 10_000)
        file.truncate(10**10)
    files = RepoFiles(tmp_path)
    assert files.file_read("zeros") == "error: zeros is a binary file of 10,000,000,000 bytes."
    text = files.file_read("log", 9_999)
    assert text.startswith("log: lines 9999-")
    assert text.endswith("10,000,000,000 bytes, only its first 2,000,000 can be read]")
    assert len(text) < 1_000
    assert "log (10,000,000,000 bytes)" in files.file_tree().splitlines()


# -- what stays hidden

HIDDEN = [
    ".env", ".env.production", "prod.env", ".envrc", ".ENV", "server.pem", "a/b/tls.key",
    "id_rsa", "id_ed25519", "id_rsa.pub", ".ssh/config", ".git/config", "sub/.git", ".netrc",
    ".npmrc", ".pypirc", ".aws/credentials", "x/.aws/config", "kubeconfig", ".kube/config",
    "cluster-kubeconfig.yaml", "service-account.json", "my_service_account_dev.json",
    "credentials.json", ".docker/config.json", "kaggle.json", ".git-credentials", ".htpasswd",
    "terraform.tfstate", "secrets.yaml", ".bash_history", "x/.config/gcloud/a", ".hg/store",
    "huggingface/token", "store.p12", "keys.KDBX", "client_secret_1.json", "secret.yaml",
    "k8s/db-secret.yml", "kube_config", "kube-config.yaml", "my_kubeconfig_dev", "secrets/a.yaml",
    "app-secrets/a.yaml", ".secrets/a", "passwords.txt", "api_key.txt", "wandb_apikey", ".token",
    "hf_token", "hf-token.txt", "terraform.tfstate.backup", "prod.tfvars.json", ".terraform/a",
    "x-firebase-adminsdk-1.json", "user.keytab", "vpn.ovpn", ".docker/a", "my-credentials.yaml",
    "cloud-credentials/a.json", "admin.conf", ".cometml.config",
]  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_files_that_hold_secrets_are_never_shown(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{name.replace("/", "__"): "the-secret\n", "train.py": "x"})
    files = RepoFiles(tmp_path)
    assert "never shown: it may hold secrets" in files.file_read(name)
    assert "the-secret" not in files.file_read(name)
    assert files.lines(name) is None
    listing = files.file_tree(depth=8)
    assert name not in listing.splitlines()
    assert "never shown, since they may hold secrets: 1" in listing
    assert files.file_tree(name).startswith("error: ")


def test_a_refusal_does_not_tell_whether_there_is_such_a_file(tmp_path: Path) -> None:
    without = RepoFiles(tmp_path).file_read(".env")
    write(tmp_path, **{".env": "A=1"})
    assert RepoFiles(tmp_path).file_read(".env") == without


@pytest.mark.parametrize(
    "name",
    [
        "env.py", "environment.yaml", "keys.py", "tokenizer.json", "id_map.py", "secrets.py",
        "config.json", "docker/config.json", "key_metrics.yaml", "gcloud/launch.sh",
        "loss_history", "credential_utils.py", "id_embeddings/train.py", "monkey.py",
        "secretnet/train.py", "train_secret_net.py", "token/data.py", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "configs/wgan.conf", "kube_config_map.py",
        "password_model/train.yaml", "tokens.yaml", "keypoints.yaml", "api_keys/train.py",
    ],
)  # fmt: skip
def test_files_of_ordinary_names_are_shown(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{name.replace("/", "__"): "x\n"})
    files = RepoFiles(tmp_path)
    assert "1| x" in files.file_read(name)
    assert name in files.file_tree().splitlines()


def test_gitignore_holds_in_both_tools(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{".gitignore": "out/\n*.log\n!keep.log\n", "d__.gitignore": "b.py\n"},
        **dict.fromkeys(["out__a.py", "run.log", "keep.log", "d__b.py", "d__c.py", "b.py"], ""),
    )
    files = RepoFiles(tmp_path)
    assert files.file_tree() == (
        ".: 6 entries, 3 levels deep\n.gitignore\nb.py\nd/\nd/.gitignore\nd/c.py\nkeep.log\n"
        "[left out by .gitignore: 3]"
    )
    for name in ("out/a.py", "run.log", "d/b.py"):
        assert files.file_read(name) == f"error: {name} is not shown: .gitignore leaves it out."
    assert files.file_tree("out").startswith("error: ")
    assert files.file_tree("d").splitlines()[1:3] == ["d/.gitignore", "d/c.py"]


def test_a_key_is_not_shown_by_asking_for_its_middle(tmp_path: Path) -> None:
    body = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" for _ in range(20))
    text = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\nepochs = 3\n"
    write(tmp_path, **{"t.py": text})
    files = RepoFiles(tmp_path, redact=Redactor().redact)
    assert "MII" not in files.file_read("t.py", 5, 5)
    assert "23| epochs = 3" in files.file_read("t.py")


# -- names and text that try to be something else


@pytest.mark.parametrize(
    "name",
    ["a\n[clipped: nothing]", "x -> (link, not followed)", "a\u202eyp.b", "\x1b[2Ja", "z\u200b"],
)
def test_a_name_cannot_pass_for_anything_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("hello\n")
    files = RepoFiles(tmp_path)
    header, row = files.file_tree().splitlines()
    assert row.startswith('"')
    assert row.endswith('"')
    assert all(map(is_visible, header + row))
    text = files.file_read(name)
    assert text.splitlines()[1:] == ["1| hello"]


def test_undecodable_names_can_be_read(tmp_path: Path) -> None:
    with Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.py")).open("w") as file:
        file.write("x\n")
    files = RepoFiles(tmp_path)
    assert '"caf\\udce9.py"' in files.file_tree()
    assert files.file_read("caf\udce9.py").endswith("1| x")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_only_numbered_lines_come_from_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").write_bytes(text.encode())
    files = RepoFiles(tmp_path)
    shown = files.file_read("t", 1, 400)
    lines = files.lines("t")
    if shown.startswith("error:") or not lines:
        return
    header, *rows = shown.split("\n")
    assert header == f"t: lines 1-{len(lines)} of {len(lines)}"
    assert [row.split("| ", 1)[0] for row in rows] == [str(n + 1) for n in range(len(lines))]


# -- LangChain


def test_the_tools_load_without_langchain() -> None:
    code = "import sys, schedmate.tools; sys.exit(any('langchain' in m for m in sys.modules "
    code += "if not m.startswith('schedmate')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_as_langchain_tools(tmp_path: Path) -> None:
    write(tmp_path, **{"t.py": "x\n"})
    files = RepoFiles(tmp_path)
    tree, read, search = as_langchain(files)
    assert (tree.name, read.name, search.name) == ("file_tree", "file_read", "file_search")
    assert search.invoke({"pattern": "^x"}) == files.file_search("^x")
    assert tree.invoke({}) == files.file_tree()
    assert read.invoke({"path": "t.py", "start_line": "1"}) == files.file_read("t.py")
    assert read.invoke({}) == "error: argument path: Field required."
    assert read.invoke({"path": ["t.py"]}).startswith("error: argument path: ")
    assert read.invoke({"path": "../t.py"}).startswith("error: ")


def test_what_the_model_is_told_of_the_tools_never_varies(tmp_path: Path) -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    (tmp_path / "other").mkdir()
    told = [convert_to_openai_tool(tool) for tool in as_langchain(RepoFiles(tmp_path))]
    assert told == [
        {
            "type": "function",
            "function": {
                "name": "file_tree",
                "description": "List the files of the repository. Directories end in /."
                " Links are not followed.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "path": {
                            "type": "string",
                            "maxLength": 400,
                            "default": ".",
                            "description": "directory, relative to the repository root",
                        },
                        "depth": {
                            "type": "integer",
                            "default": 3,
                            "description": "levels to descend",
                        },
                    },
                },
            },
        },
        {
            "type": "function",
            "function": {
                "name": "file_read",
                "description": "Read numbered lines of one text file of the repository.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "path": {
                            "type": "string",
                            "maxLength": 400,
                            "description": "file, relative to the repository root",
                        },
                        "start_line": {
                            "type": "integer",
                            "default": 1,
                            "description": "first line, counted from 1",
                        },
                        "max_lines": {
                            "type": "integer",
                            "default": 400,
                            "description": "number of lines",
                        },
                    },
                    "required": ["path"],
                },
            },
        },
        {
            "type": "function",
            "function": {
                "name": "file_search",
                "description": "Find lines of the repository that match a regular expression"
                " (RE2, any case).",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "pattern": {
                            "type": "string",
                            "maxLength": 400,
                            "description": "regular expression, matched within a line",
                        },
                        "path": {
                            "type": "string",
                            "maxLength": 400,
                            "default": ".",
                            "description": "directory or file to search",
                        },
                    },
                    "required": ["pattern"],
                },
            },
        },
    ]
    again = [convert_to_openai_tool(t) for t in as_langchain(RepoFiles(tmp_path / "other"))]
    assert str(again) == str(told)
