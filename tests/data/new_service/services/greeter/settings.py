"""Settings of greeter; the only place that reads its environment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.config.settings import ServiceSettings


class Settings(ServiceSettings):
    """Settings of greeter."""

    service: ClassVar[str] = "greeter"

    greeting: str = Field(default="hello", description="first word of a greeting")
