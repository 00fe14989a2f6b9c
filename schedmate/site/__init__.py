"""A site's own accounting: how predictable its jobs are, its queue, its failures and their cost."""
