"""No status is evidence of continuity; the table over every status there is."""

from __future__ import annotations

from counterfoil.protocol.client_stream.statuses import Meaning, is_not_applied, meaning_of


def test_every_status_has_one_meaning() -> None:
    expected = {404: Meaning.SESSION_OVER, 401: Meaning.STREAM_OVER, 403: Meaning.STREAM_OVER}
    expected |= {405: Meaning.STREAM_OVER}
    expected |= dict.fromkeys((429, 502, 503, 504), Meaning.KEEP)
    for status in range(100, 600):
        default = Meaning.ACCEPTED if 200 <= status < 300 else Meaning.FAILURE
        assert meaning_of(status) is expected.get(status, default)


def test_only_listed_refusals_are_not_applied() -> None:
    certain = {400, 401, 403, 404, 405, 406, 413, 415, 429}
    for status in range(100, 600):
        assert is_not_applied(status, has_retry_after=False) is (status in certain)
        assert is_not_applied(status, has_retry_after=True) is (status in certain | {503})
