"""Kettles and who makes them."""

from __future__ import annotations

from django.db import models


class Maker(models.Model):
    """A maker of kettles."""

    name = models.CharField(max_length=60)

    def __str__(self) -> str:
        return str(self.name)


class Kettle(models.Model):
    """A kettle for sale."""

    name = models.CharField(max_length=60)
    maker = models.ForeignKey(Maker, on_delete=models.CASCADE)
    kind = models.CharField(max_length=1, choices=[("e", "electric"), ("g", "gas"), ("c", "camping")])
    price = models.DecimalField(max_digits=6, decimal_places=2)
    made = models.DateField()
    sold = models.BooleanField(default=False)

    def __str__(self) -> str:
        return str(self.name)
