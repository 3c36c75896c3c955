"""Scratch buffers that are wiped, secret memory, process hardening."""
