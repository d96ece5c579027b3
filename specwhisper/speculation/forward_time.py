"""Split the time of a forward pass: its sessions', its tokens', and the rest."""

from __future__ import annotations

FORWARD_DECAY = 1 - 1 / 256  # of a forward pass's weight with every later one
ENGINE_NS = 200_000  # of a session between two forward passes: its engine, its messages
MIN_VARIANCE = 1.0  # of the numbers of tokens; below it the slope is unknown
FIRST_SESSION_SHARE = 0.5  # of a forward pass without tokens that is the sessions', until that is measured
PRIOR_VARIANCE = 0.05  # of the numbers of sessions: with less, that share is taken


class BatchTime:
    """Least squares over a target's forward passes: time by sessions and tokens.

    Recent ones count more. Forward passes of equally many sessions do not show what a session takes. Until
    they differ it is taken to be a share of what they take without tokens.

    Attributes
    ----------
    session_ns, token_ns : time that one more session takes, without its tokens, and one more token.
    token_share : time of a token over its session's part of a forward pass without tokens: at most 1, and 0
        until it is known.
    """

    def __init__(self) -> None:
        self.session_ns = self.token_ns = self.token_share = 0.0
        self._weight = 0.0
        self._sessions = self._tokens = self._ns = 0.0  # means
        self._var_sessions = self._var_tokens = self._cov = 0.0
        self._cov_sessions_ns = self._cov_tokens_ns = 0.0

    def observe(self, num_sessions: int, num_tokens: int, forward_ns: float) -> None:
        self._weight = FORWARD_DECAY * self._weight + 1
        gain = 1 / self._weight
        keep = 1 - gain
        sessions, tokens, ns = num_sessions - self._sessions, num_tokens - self._tokens, forward_ns - self._ns
        self._sessions += gain * sessions
        self._tokens += gain * tokens
        self._ns += gain * ns
        self._var_sessions = keep * (self._var_sessions + gain * sessions**2)
        self._var_tokens = keep * (self._var_tokens + gain * tokens**2)
        self._cov = keep * (self._cov + gain * sessions * tokens)
        self._cov_sessions_ns = keep * (self._cov_sessions_ns + gain * sessions * ns)
        self._cov_tokens_ns = keep * (self._cov_tokens_ns + gain * tokens * ns)
        self._solve()
        session_ns = (self._ns - self.token_ns * self._tokens) / num_sessions + ENGINE_NS
        self.token_share = self.token_ns / max(self.token_ns, session_ns)

    def _solve(self) -> None:
        is_known = self._var_tokens >= MIN_VARIANCE
        by_tokens_ns = max(0.0, self._cov_tokens_ns / self._var_tokens) if is_known else 0.0
        without_tokens_ns = max(0.0, self._ns - by_tokens_ns * self._tokens)
        first_ns = FIRST_SESSION_SHARE * without_tokens_ns / self._sessions
        var_sessions = self._var_sessions + PRIOR_VARIANCE
        cov_sessions_ns = self._cov_sessions_ns + PRIOR_VARIANCE * first_ns
        determinant = var_sessions * self._var_tokens - self._cov**2
        if not is_known or determinant <= 0:
            self.token_ns, self.session_ns = by_tokens_ns, first_ns
            return
        token_ns = (var_sessions * self._cov_tokens_ns - self._cov * cov_sessions_ns) / determinant
        session_ns = (self._var_tokens * cov_sessions_ns - self._cov * self._cov_tokens_ns) / determinant
        self.token_ns, self.session_ns = max(0.0, token_ns), max(0.0, session_ns)
