"""What a followed program is watched for, which is what the trace keeps."""
