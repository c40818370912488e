"""What every section of the schema shares: strictness, bounds, and the facts the reference is made of."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


class Section(BaseModel):
    """A group of keys. Unknown keys are refused, and a loaded section never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _check_bounds(cls, value: object, info: ValidationInfo) -> object:
        # Pydantic's own ge/le cannot stand behind a parser on a field that may be null.
        facts = facts_of(cls, info.field_name or "")
        if isinstance(value, int | float) and not isinstance(value, bool):
            minimum, maximum = facts.get("minimum"), facts.get("maximum")
            if isinstance(minimum, int | float) and value < minimum:
                raise ValueError(f"must be at least {minimum}{_unit_text(facts)}")
            if isinstance(maximum, int | float) and value > maximum:
                raise ValueError(f"must be at most {maximum}{_unit_text(facts)}")
        return value


def _unit_text(facts: dict[str, object]) -> str:
    return f" {facts['unit']}" if facts.get("unit") else ""


def facts_of(section: type[BaseModel], name: str) -> dict[str, object]:
    """The facts `setting` wrote beside a field; empty for a section inside a section."""
    extra = section.model_fields[name].json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}


def setting(
    default: object,
    text: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    live: bool = False,
    needs_private: bool = False,
    is_input_file: bool = False,
    shown_default: str = "",
) -> Any:
    """One key: its default, what it does, its unit and bounds.

    `live` keys take effect without a restart. An input file must exist; a private one must not be
    readable by everyone.
    """
    facts: dict[str, object] = {
        "unit": unit,
        "minimum": minimum,
        "maximum": maximum,
        "live": live,
        "needs_private": needs_private,
        "is_input_file": is_input_file or needs_private,
        "shown_default": shown_default,
    }
    kept = {
        name: fact for name, fact in facts.items() if fact is not None and fact != "" and fact is not False
    }
    return Field(default=default, description=text, json_schema_extra=kept)  # type: ignore[arg-type]
