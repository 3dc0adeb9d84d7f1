"""Hypothesis strategies for the values that callers hand in, shared by all tests."""

from __future__ import annotations

from hypothesis import strategies as st

from admission.policy import AdmissionPolicy

policies = st.sampled_from(AdmissionPolicy)
durations = st.floats(min_value=0, max_value=1e9)
"""Seconds, as a caller may give them."""
randoms = st.randoms(use_true_random=False)
