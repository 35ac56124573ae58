"""Run by .venv-peers: tells a running Luigi scheduler of invented tasks. `fill_luigi.py URL`."""

import sys

from luigi.rpc import RemoteScheduler

FAMILIES = {"rivers.FetchGauges": "DONE", "rivers.CleanGauges": "FAILED", "mills.CountWheels": "PENDING", "mills.Report": "RUNNING"}  # fmt: skip


def main(url: str) -> None:
    """Twelve tasks in each of four families, in five states, of one worker and with one resource."""
    scheduler = RemoteScheduler(url)
    scheduler.add_worker("worker-1", [("workers", 2), ("host", "h1"), ("username", "ann")])
    scheduler.update_resources(pens=8)
    for family, usual in FAMILIES.items():
        module, _, name = family.partition(".")
        for number in range(12):
            status = "DONE" if number % 4 == 3 else usual
            task = f"{name}_{number:02d}"
            scheduler.add_task(
                worker="worker-1",
                task_id=task,
                status=status,
                family=name,
                module=module,
                params={"day": f"2024-12-{number + 1:02d}"},
                priority=number % 3,
                resources={"pens": 1} if name == "Report" and number < 2 else {},
                deps=[f"FetchGauges_{number:02d}"] if name == "CleanGauges" else [],
                expl=f"No gauge on day {number}" if status == "FAILED" else None,
            )


if __name__ == "__main__":
    main(sys.argv[1])
