"""What was run, where and with what: the part of a record that every figure needs."""

from satisfice.results.provenance import provenance

__all__ = ["provenance"]
