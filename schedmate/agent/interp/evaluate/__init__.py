"""What the machine does with statements and expressions, a module for each kind of construct."""
