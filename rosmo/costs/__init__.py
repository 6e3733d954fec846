"""What an update costs: FLOP, bytes and speed, on this machine and on TPUs that are not there."""

from rosmo.costs.compute import Compute, update_compute
from rosmo.costs.flops import count_flops

__all__ = ["Compute", "count_flops", "update_compute"]
