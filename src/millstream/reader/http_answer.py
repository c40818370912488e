"""Answers as bytes: status lines, headers, and refusals told as JSON. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from millstream.reader.http import JSON_TYPE, Answer, HttpFault

HEADERS: Final = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"


def encode_head(status: int, is_last: bool, more: str, content_type: str) -> bytes:
    """`more` are further headers, each with its end of line."""
    end = "Connection: close\r\n" if is_last else ""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n{more}{HEADERS}{end}\r\n"
    return head.encode("latin-1")


def encode_answer(answer: Answer, is_last: bool) -> list[bytes]:
    body = answer.encode()
    return [encode_head(answer.status, is_last, f"Content-Length: {len(body)}\r\n", JSON_TYPE), body]


def encode_fault(fault: HttpFault, is_last: bool) -> list[bytes]:
    body = Answer({"error": fault.error, "hint": fault.hint, **fault.fields}).encode()
    more = f"Content-Length: {len(body)}\r\n"
    if fault.status == HTTPStatus.UNAUTHORIZED:
        more += 'WWW-Authenticate: Basic realm="millstream", charset="UTF-8"\r\n'
    if fault.retry_after_s:
        more += f"Retry-After: {fault.retry_after_s}\r\n"
    return [encode_head(fault.status, is_last, more, JSON_TYPE), body]
