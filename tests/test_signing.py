"""Signatures: no two different messages share their bytes, and nothing that is not exactly right verifies."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd import signing
from zeroclawd.errors import KeyFileError
from zeroclawd.signing import HmacKey, Keypair, Verifier

fields = st.lists(st.text(st.characters(), max_size=6) | st.binary(max_size=6), max_size=4)
labels = st.text(max_size=6)


def as_bytes(parts: list[str | bytes]) -> list[bytes]:
    return [part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts]


# Encoding


@given(labels, fields, labels, fields)
def test_two_lists_of_fields_share_their_bytes_only_if_they_are_the_same(
    label: str, one: list[str | bytes], other_label: str, other: list[str | bytes]
) -> None:
    equal = signing.encode(label, one) == signing.encode(other_label, other)
    assert equal == (as_bytes([label, *one]) == as_bytes([other_label, *other]))


@given(labels, st.text(max_size=8), st.integers(0, 8))
def test_moving_the_border_between_two_fields_changes_the_bytes(label: str, text: str, at: int) -> None:
    moved = (text[:at] + "|", text[at:])
    assert signing.encode(label, moved) != signing.encode(label, (text[:at], "|" + text[at:]))
    assert signing.encode(label, [text]) != signing.encode(label, [text, ""])


def test_the_encoding_is_a_four_byte_length_and_the_bytes_of_each_field() -> None:
    assert signing.encode("v1", ["é", b"\x00"]) == b"\0\0\0\2v1\0\0\0\2\xc3\xa9\0\0\0\1\0"


def test_keys_of_different_purposes_differ() -> None:
    key = b"k" * 32
    derived = {
        signing.derive(key, "a"),
        signing.derive(key, "b"),
        signing.derive(key, "a", ""),
        signing.derive(key, "a", "b"),
        signing.derive(key, "ab"),
        signing.derive(b"l" * 32, "a"),
    }
    assert len(derived) == 6
    assert all(len(one) == 32 for one in derived)


def test_a_keyed_digest_shows_equal_content_and_needs_the_key() -> None:
    assert signing.keyed_digest(b"k", "a", "x", b"y") == signing.keyed_digest(b"k", "a", "x", b"y")
    assert signing.keyed_digest(b"k", "a", "x", "y") != signing.keyed_digest(b"k", "a", "xy", "")
    assert signing.keyed_digest(b"k", "a", "x") != signing.keyed_digest(b"l", "a", "x")
    assert len(signing.keyed_digest(b"k", "a", "x")) == 64


# Base64


@given(st.binary(max_size=70))
def test_base64_is_read_in_every_usual_spelling(raw: bytes) -> None:
    assert "=" not in signing.b64(raw)
    for text in (
        signing.b64(raw),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        f" {signing.b64(raw)}\n",
    ):
        assert signing.unb64(text) == raw


@pytest.mark.parametrize("text", ["a", "a b c d", "é", "a*==", "\ud800", "====a", "a=b="])
def test_what_is_no_base64_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not base64"):
        signing.unb64(text)


# Ed25519 and HMAC

# RFC 8032, section 7.1, test 1
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)


def test_ed25519_is_the_one_of_rfc_8032(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "encode", lambda _label, _fields: b"")
    assert signing.unb64(Keypair(SEED).public) == PUBLIC
    assert signing.unb64(Keypair(SEED).sign("", [])) == SIGNATURE
    assert Verifier(signing.b64(PUBLIC)).verify(signing.b64(SIGNATURE), "", [])


SHARED = b"shared key of an operator"
PAIRS = [
    pytest.param(Keypair(SEED), Verifier(Keypair(SEED).public), id="ed25519"),
    pytest.param(HmacKey(SHARED), Verifier(hmac_key=SHARED), id="hmac"),
]
FIELDS = ["request", "nonce", "approve", "digest", "", "1711547700"]


@pytest.mark.parametrize(("signer", "verifier"), PAIRS)
def test_a_signature_verifies_over_exactly_what_was_signed(signer: signing.Signer, verifier: Verifier) -> None:
    told = signer.sign(signing.DECISION, FIELDS)
    assert verifier.verify(told, signing.DECISION, FIELDS)
    for place in range(len(FIELDS)):
        changed = [*FIELDS[:place], FIELDS[place] + "x", *FIELDS[place + 1 :]]
        assert not verifier.verify(told, signing.DECISION, changed)
    assert not verifier.verify(told, signing.DECISION, FIELDS[:-1])
    assert not verifier.verify(told, signing.DECISION, [*FIELDS, ""])
    assert not verifier.verify(told, signing.DECISION, [*FIELDS[1:], FIELDS[0]])


@pytest.mark.parametrize(("signer", "verifier"), PAIRS)
def test_a_signature_for_one_purpose_is_none_for_another(signer: signing.Signer, verifier: Verifier) -> None:
    told = signer.sign(signing.DECISION, FIELDS)
    for label in (signing.COMMAND, signing.RELEASE, signing.CHECKPOINT, signing.RECEIPT, signing.ROW, ""):
        assert not verifier.verify(told, label, FIELDS)


@pytest.mark.parametrize(("signer", "verifier"), PAIRS)
@given(bit=st.integers(0, 255))
def test_a_single_bit_breaks_a_signature(signer: signing.Signer, verifier: Verifier, bit: int) -> None:
    raw = bytearray(signing.unb64(signer.sign(signing.DECISION, FIELDS)))
    raw[bit // 8] ^= 1 << bit % 8
    assert not verifier.verify(signing.b64(bytes(raw)), signing.DECISION, FIELDS)


def test_another_key_verifies_nothing() -> None:
    told = Keypair.generate().sign(signing.DECISION, FIELDS)
    assert not Verifier(Keypair(SEED).public).verify(told, signing.DECISION, FIELDS)
    assert not Verifier(hmac_key=b"other").verify(
        HmacKey(SHARED).sign(signing.DECISION, FIELDS), signing.DECISION, FIELDS
    )
    assert not Verifier(hmac_key=SHARED).verify(told, signing.DECISION, FIELDS)


def test_an_operator_without_a_key_verifies_nothing() -> None:
    assert not Verifier().verify("", signing.DECISION, FIELDS)
    assert not Verifier().verify(HmacKey(b"").sign(signing.DECISION, FIELDS), signing.DECISION, FIELDS)


MALFORMED = ["", "a", "*", "é", "\ud800", "AAAA", "A" * 86, "A" * 87, "A" * 100_000, "\0", "None"]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_signature_or_key_is_a_no_and_never_an_error(text: str) -> None:
    good = Keypair(SEED).sign(signing.DECISION, FIELDS)
    assert not Verifier(Keypair(SEED).public).verify(text, signing.DECISION, FIELDS)
    assert not Verifier(hmac_key=SHARED).verify(text, signing.DECISION, FIELDS)
    assert not Verifier(public_key=text).verify(good, signing.DECISION, FIELDS)


# The identity and a point of order 8 (RFC 8032, section 5.1): with these as a key, one signature would fit every message.
SMALL = ["01" + "00" * 31, "00" * 32, "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"]


@pytest.mark.parametrize("key", SMALL)
def test_a_key_of_small_order_verifies_nothing(key: str) -> None:
    public = signing.b64(bytes.fromhex(key))
    for signature in (bytes.fromhex(key) + bytes(32), bytes(64), bytes.fromhex("01" + "00" * 63)):
        assert not Verifier(public).verify(signing.b64(signature), signing.DECISION, FIELDS)


def test_no_key_shows_in_a_log() -> None:
    secret = b"\x01" * 32
    for holder in (Keypair(secret), HmacKey(secret), Verifier(hmac_key=secret)):
        assert "x01" not in repr(holder)


def test_a_public_key_is_checked_and_given_in_one_spelling() -> None:
    assert signing.public_key(base64.b64encode(PUBLIC).decode(), "operators.ann") == signing.b64(PUBLIC)
    for text in ("", "AAAA", "not base64!", "é", Keypair(SEED).public + "AAAA"):
        with pytest.raises(KeyFileError, match=r"operators\.ann: not an Ed25519 public key") as caught:
            signing.public_key(text, "operators.ann")
        assert "keygen" in caught.value.hint


def test_generated_keys_differ() -> None:
    assert Keypair.generate().seed != Keypair.generate().seed
    assert len(Keypair.generate().seed) == 32


@given(st.text(st.characters(), max_size=8), st.text(st.characters(), max_size=8))
def test_equal_compares_any_two_texts(one: str, other: str) -> None:
    assert signing.equal(one, other) == (one == other)


# What is signed

DECISION: dict[str, Any] = {
    "v": 1,
    "request_id": "r1",
    "nonce": "n1",
    "verdict": "always",
    "arguments_digest": "d1",
    "operator": "ann",
    "ts": 1711547700,
    "grant": {"match": "exact", "ttl": 3600},
}
COMMAND: dict[str, Any] = {
    "v": 1,
    "id": "c1",
    "text": "light on",
    "session": "s",
    "sender": "ann",
    "ts": 1711547700,
    "ttl": 60,
    "reply_to": "there",
    "tools": ["device_write", "device_read"],
}
RELEASE: dict[str, Any] = {"action": "release", "operator": "ann", "ts": 1711547700, "boot_id": "b1"}


def decided(**change: Any) -> list[str]:
    return signing.decision_fields({**DECISION, **change})


def commanded(**change: Any) -> list[str]:
    return signing.command_fields("node", {**COMMAND, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"request_id": "r2"},
        {"nonce": "n2"},
        {"verdict": "approve"},
        {"arguments_digest": "d2"},
        {"operator": "bob"},
        {"ts": 1711547701},
        {"grant": None},
        {"grant": {}},
        {"grant": {"match": "device", "ttl": 3600}},
        {"grant": {"match": "exact", "ttl": 7200}},
        {"grant": {"match": "exact"}},
        {"replacement": ""},
        {"replacement": "x"},
        {"replacement": "set"},
    ],
)
def test_every_part_of_a_decision_is_signed(change: dict[str, Any]) -> None:
    assert decided(**change) != decided()


def test_a_decision_without_a_replacement_differs_from_one_with_an_empty_replacement() -> None:
    assert decided(verdict="replace") == decided(verdict="replace", replacement=None)
    assert decided(verdict="replace") != decided(verdict="replace", replacement="")


def test_a_replacement_cannot_pass_for_a_grant() -> None:
    assert decided(replacement="exact", grant=None) != decided(replacement=None, grant={"match": "exact"})
    assert decided(replacement="set", grant=None) != decided(replacement=None, grant={"match": "set"})


def test_null_is_missing_and_never_the_word_none() -> None:
    assert decided(operator=None) == signing.decision_fields({k: v for k, v in DECISION.items() if k != "operator"})
    assert decided(operator=None) != decided(operator="None")
    assert commanded(sender=None) != commanded(sender="None")


@pytest.mark.parametrize(
    "change",
    [
        {"id": "c2"},
        {"text": "light off"},
        {"session": "t"},
        {"sender": "bob"},
        {"ts": 1711547701},
        {"ttl": 61},
        {"ttl": None},
        {"reply_to": "elsewhere"},
        {"tools": None},
        {"tools": []},
        {"tools": [""]},
        {"tools": ["device_write\ndevice_read"]},
        {"tools": ["device_read", "device_write"]},
        {"tools": ["device_write", "device_read", ""]},
        {"tools": ["device_write", "device_read", "shell"]},
        {"tools": "device_write"},
    ],
)
def test_every_part_of_a_command_is_signed(change: dict[str, Any]) -> None:
    assert commanded(**change) != commanded()


tools = st.none() | st.lists(st.sampled_from(("", "a", "b", "a\nb", "set")), max_size=3)


@given(tools, tools)
def test_two_different_lists_of_tools_never_share_a_signature(one: list[str] | None, other: list[str] | None) -> None:
    assert (commanded(tools=one) == commanded(tools=other)) == (one == other)


def test_a_command_for_one_node_is_none_for_another() -> None:
    assert signing.command_fields("node", COMMAND) != signing.command_fields("all", COMMAND)
    assert signing.release_fields("node", RELEASE) != signing.release_fields("other", RELEASE)


@pytest.mark.parametrize("name", sorted(RELEASE))
def test_every_part_of_a_release_is_signed(name: str) -> None:
    assert signing.release_fields("node", {**RELEASE, name: "other"}) != signing.release_fields("node", RELEASE)


def test_numbers_are_signed_as_json_writes_them() -> None:
    assert "1711547700" in commanded()
    assert "1711547700.5" in commanded(ts=1711547700.5)
    assert "true" in commanded(session=True)


@given(
    st.dictionaries(
        st.sampled_from([*DECISION, *COMMAND, *RELEASE, "replacement"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
            max_leaves=4,
        ),
    )
)
def test_whatever_came_in_can_be_checked_without_an_error(envelope: dict[str, Any]) -> None:
    for told in (
        signing.decision_fields(envelope),
        signing.command_fields("node", envelope),
        signing.release_fields("node", envelope),
    ):
        assert not Verifier(Keypair(SEED).public).verify(signing.b64(bytes(64)), signing.COMMAND, told)
