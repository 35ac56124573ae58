"""Task sets held against snapshots before anyone is paid: rubrics linted, answers sought, needs covered."""
