"""Index of a snapshot: sorted lines made from its records on all cores (`build`), and their reader (`cdxj`)."""
