"""The admin's lists and forms."""

from __future__ import annotations

from django.contrib import admin

from .models import Kettle, Maker


@admin.register(Kettle)
class KettleAdmin(admin.ModelAdmin):
    """Kettles with filters, search, dates, editing in the list, and an action."""

    list_display = ("name", "maker", "kind", "price", "made", "sold")
    list_filter = ("kind", "sold", "maker", "made")
    search_fields = ("name", "maker__name")
    list_per_page = 12
    date_hierarchy = "made"
    list_editable = ("sold",)
    autocomplete_fields = ("maker",)
    actions = ("mark_sold",)

    @admin.action(description="Mark as sold")
    def mark_sold(self, request, chosen):
        """Mark the chosen kettles as sold."""
        self.message_user(request, f"{chosen.update(sold=True)} kettles marked")


class KettlesOfMaker(admin.TabularInline):
    """A maker's kettles."""

    model = Kettle
    extra = 1


@admin.register(Maker)
class MakerAdmin(admin.ModelAdmin):
    """Makers with their kettles."""

    search_fields = ("name",)
    inlines = (KettlesOfMaker,)
