"""What one site adds to schedmate: `pip install ./examples/plugin`, beside schedmate."""
