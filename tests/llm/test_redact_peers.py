"""What detect-secrets, a scanner that is kept well, takes for a secret is taken out here too."""

from __future__ import annotations

import random
import string
import warnings
from collections.abc import Iterator

import pytest

from schedmate.llm.redact import Redactor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits
MIXED = string.ascii_letters + string.digits
PEERS = {
    name: kind()
    for name, kind in get_mapping_from_secret_type_to_class().items()
    # addresses are no secrets; of a private key it takes the header alone
    if issubclass(kind, RegexBasedDetector) and name not in ("Public IP (ipv4)", "Private Key")
}
FORMS: dict[str, list[tuple[str, ...]]] = {
    "AWS Access Key": [("AKIA", "16A"), ("ASIA", "16A"), ("aws_secret_key = '", "40m", "'")],
    "Artifactory Credentials": [("AKC", "64m")],
    "Azure Storage Account access key": [("AccountKey=", "86m", "==")],
    "Basic Auth Credentials": [("https://bob:", "12m", "@example.org")],
    "Cloudant Credentials": [("cloudant_password = '", "64h", "'")],
    "Discord Bot Token": [("token = 'M", "23m", ".", "6m", ".", "27m", "'")],
    "GitHub Token": [("ghp_", "36m"), ("ghs_", "36m"), ("gho_", "36m")],
    "GitLab Token": [("glpat-", "20m"), ("GR1348941", "20m"), ("glptt-", "40m"), ("glrt-", "20m")],
    "IBM Cloud IAM Key": [("ibm_cloud_iam_key = '", "44m", "'")],
    "IBM COS HMAC Credentials": [("cos_hmac_secret_access_key = '", "48h", "'")],
    "JSON Web Token": [("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.", "43m")],
    "Mailchimp Access Key": [("", "32h", "-us12")],
    "NPM tokens": [("//registry.npmjs.org/:_authToken=npm_", "36m")],
    "OpenAI Token": [("sk-", "20m", "T3BlbkFJ", "20m")],
    "PyPI Token": [("pypi-AgEIcHlwaS5vcmc", "90m")],
    "SendGrid API Key": [("SG.", "22m", ".", "43m")],
    "Slack Token": [
        ("xoxb-", "12d", "-", "24l"),
        ("https://hooks.slack.com/services/T", "8m", "/B", "8m", "/", "24m"),
    ],
    "SoftLayer Credentials": [("softlayer_api_key = '", "64l", "'")],
    "Square OAuth Secret": [("sq0csp-", "43m")],
    "Stripe Access Key": [("sk_live_", "24m"), ("rk_live_", "24m")],
    "Telegram Bot Token": [("110201543:AA", "33m")],
    "Twilio API Key": [("SK", "32h")],
}  # fmt: skip
"""A way to write each secret: texts, and `24m` for 24 letters and digits drawn at random."""


def written(form: tuple[str, ...], drawn: random.Random) -> Iterator[str]:
    alphabets = {
        "A": string.ascii_uppercase + "234567",
        "h": HEX,
        "l": LOWER,
        "m": MIXED,
        "d": "0123456789",
    }
    for part in form:
        if part[:-1].isdecimal():
            yield "".join(drawn.choices(alphabets[part[-1]], k=int(part[:-1])))
        else:
            yield part


def test_every_kind_that_it_knows_is_here() -> None:
    assert PEERS.keys() == FORMS.keys()


@pytest.mark.parametrize("name", FORMS)
def test_what_it_finds_is_taken_out(name: str) -> None:
    drawn = random.Random(17)
    for form in FORMS[name]:
        for _ in range(20):
            text = "".join(written(form, drawn))
            line = text if "'" in text or "=" in text else f'run("{text}")'
            found = {one for one in PEERS[name].analyze_string(line) if one}
            assert found, line
            redacted = Redactor().redact(line)
            assert not [one for one in found if one in redacted], line
