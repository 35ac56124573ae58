# docker build --target core .     open, verify, look up and replay snapshots
# docker build --target all .      also record, run agents, drive Chromium   (the default)
FROM python:3.12-slim-bookworm AS build
COPY . /src
RUN python -m pip wheel --no-cache-dir --no-deps -w /wheels /src

FROM python:3.12-slim-bookworm AS core
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir /wheels/*.whl
ENV STILLWEB_STATE=/data/.stillweb
WORKDIR /data
ENTRYPOINT ["stillweb"]

FROM core AS all
RUN apt-get update && apt-get install -y --no-install-recommends chromium fonts-liberation libatomic1 && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir "$(echo /wheels/*.whl)[all,share]"
