"""Operations on a whole snapshot: verify, diff, cut, upgrade its texts, search it for secrets."""
