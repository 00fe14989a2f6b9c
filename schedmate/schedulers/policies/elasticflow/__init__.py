"""ElasticFlow (ASPLOS'23): elastic jobs that are promised to meet their deadlines."""

from schedmate.schedulers.policies.elasticflow.policy import ElasticFlow

__all__ = ["ElasticFlow"]
