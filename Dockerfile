# CPU:  docker build -t evomal .
# CUDA: docker build -t evomal:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
# Run:  docker run --rm -v "$PWD/runs:/work/runs" evomal search diabetes --out runs/mine      (CUDA: with --gpus all)
FROM python:3.12-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /opt/evomal
# Libraries first: they change less often than evomal, and torch is the one of the chosen index.
COPY constraints.txt pyproject.toml README.md LICENSE ./
RUN grep '^torch==' constraints.txt > torch.txt \
    && pip install --no-cache-dir --index-url "$TORCH_INDEX" --requirement torch.txt
COPY evomal evomal
RUN pip install --no-cache-dir --constraint constraints.txt '.[search,report,server,onnx]' \
    && useradd --create-home --uid 1000 evomal \
    && mkdir /work \
    && chown evomal /work

USER evomal
WORKDIR /work
ENV EVOMAL_DATA=/work/data
ENTRYPOINT ["evomal"]
CMD ["--help"]
