"""The dashboard's pages."""

from fastapi import APIRouter
from schedmate.serve.access import Access
from schedmate.serve.service import Service


def pages(service: Service, access: Access) -> APIRouter:
    return APIRouter()
