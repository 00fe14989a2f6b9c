"""Ray under the queue: its nodes, actors that hold GPUs, a cluster on this machine to try it on."""
