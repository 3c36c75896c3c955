"""Statistics whose cells two machines hold as secret shares: ring, share rules, one party's steps, and estimates.

Transport and storage are in `panstream.distributed.two_party`.
"""
