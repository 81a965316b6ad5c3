"""Certificates: what a metric is on new data, with a stated confidence, for any number of rows."""

from anyloss.certificates.certify import Certificate, certify

__all__ = ["Certificate", "certify"]
