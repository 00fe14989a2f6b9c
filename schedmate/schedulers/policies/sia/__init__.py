"""Sia (SOSP'23): elastic jobs on several GPU types, by an integer program over goodputs."""

from schedmate.schedulers.policies.sia.policy import Sia

__all__ = ["Sia"]
