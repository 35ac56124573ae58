"""From records to sorted index lines (`build`), on all cores, and the index as it is read (`cdxj`)."""
