"""The truth about elastic jobs, from measured tables: step times, gradients, epochs."""
