"""Certificates: what a metric is on new data, with a stated confidence, for any number of rows."""

from anyloss.certificates.certify import Certificate, certify
from anyloss.certificates.choosing import CertifiedThreshold, certified_threshold

__all__ = ["Certificate", "CertifiedThreshold", "certified_threshold", "certify"]
