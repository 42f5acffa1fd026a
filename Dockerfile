# CPU:  docker build -t evomal .
# CUDA: docker build -t evomal:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
# Run:  mkdir -p runs && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/runs:/work/runs" evomal \
#           search diabetes --out runs/mine      (CUDA: with --gpus all)
FROM python:3.12-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# Triton compiles the launcher of its kernels where it runs. Versions of Debian's packages vanish from its mirrors.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/evomal
# Libraries first: they change less often than evomal, and torch is the one of the chosen index.
COPY constraints.txt pyproject.toml README.md LICENSE ./
RUN grep '^torch==' constraints.txt > torch.txt \
    && pip install --no-cache-dir --index-url "$TORCH_INDEX" --requirement torch.txt
COPY evomal evomal
RUN pip install --no-cache-dir --constraint constraints.txt '.[search,report,server,onnx]' \
    && useradd --create-home --uid 1000 evomal \
    && mkdir /work \
    && chmod 1777 /work

USER 1000
WORKDIR /work
ENV EVOMAL_DATA=/work/data HOME=/tmp
ENTRYPOINT ["evomal"]
CMD ["--help"]
