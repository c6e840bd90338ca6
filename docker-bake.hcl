# Written by `python tools/bake_file.py --write` from docker/images.toml: do not edit.
#   docker buildx bake --load torch2-11-0-cu130       one image: its name, with - for each dot
#   docker buildx bake --push --set '*.platform=linux/amd64'       all of them, with SBOM and provenance

variable "REGISTRY" {
  default = "" # such as registry.example/recapture/, with the slash
}

variable "REVISION" {
  default = "" # the commit that is built
}

target "_image" {
  context    = "."
  dockerfile = "docker/Dockerfile"
  attest = [
    "type=provenance,mode=max",
    "type=sbom",
  ]
}

group "default" {
  targets = [
    "torch2-0-0-cu117",
    "torch2-0-1-cu117",
    "torch2-1-0-cu121",
    "torch2-1-1-cu121",
    "torch2-1-2-cu121",
    "torch2-1-2-cu121-drifted",
    "torch2-2-0-cu121",
    "torch2-2-1-cu121",
    "torch2-2-2-cu121",
    "torch2-2-2-cu121-drifted",
    "torch2-3-0-cu121",
    "torch2-3-1-cu121",
    "torch2-4-0-cu121",
    "torch2-4-1-cu121",
    "torch2-5-0-cu124",
    "torch2-5-1-cu124",
    "torch2-6-0-cu124",
    "torch2-6-0-cu124-drifted",
    "torch2-7-0-cu126",
    "torch2-7-1-cu126",
    "torch2-8-0-cu128",
    "torch2-9-0-cu128",
    "torch2-9-1-cu128",
    "torch2-9-1-cu128-drifted",
    "torch2-10-0-cu128",
    "torch2-11-0-cu130",
    "torch2-12-0-cu130",
    "torch2-12-1-cu130",
    "torch2-13-0-cu130",
    "torch2-14-0-cu130",
    "torch2-14-1-cu130",
    "torch2-15-0-cu132",
  ]
}

target "torch2-0-0-cu117" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.0.0-cu117"]
  args = {
    BASE        = "python:3.10.20-slim-bookworm@sha256:9643927a6fc74bd81b0f1bbb5cce3cb4a491f46b4c5dbee770f28e575f180015"
    BASE_DIGEST = "sha256:9643927a6fc74bd81b0f1bbb5cce3cb4a491f46b4c5dbee770f28e575f180015"
    IMAGE       = "torch2.0.0-cu117"
    PYTHON      = "3.10"
    LOCK_HASH   = "sha256:601c849d912c1cc0bb03b71c877581cbe3b70e073a2bb206e7ee5cf7c55dbc41"
    REVISION    = REVISION
  }
}

target "torch2-0-1-cu117" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.0.1-cu117"]
  args = {
    BASE        = "python:3.10.20-slim-bookworm@sha256:9643927a6fc74bd81b0f1bbb5cce3cb4a491f46b4c5dbee770f28e575f180015"
    BASE_DIGEST = "sha256:9643927a6fc74bd81b0f1bbb5cce3cb4a491f46b4c5dbee770f28e575f180015"
    IMAGE       = "torch2.0.1-cu117"
    PYTHON      = "3.10"
    LOCK_HASH   = "sha256:6d5fc4a1b7b80d81aa60965ebae48fde15bac32d9c55f01b2d5b47b8284a4caa"
    REVISION    = REVISION
  }
}

target "torch2-1-0-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.1.0-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.1.0-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:bd3ea118e8b9184a436abd9759e674c4157b20bc31a8347199d275e2935cc176"
    REVISION    = REVISION
  }
}

target "torch2-1-1-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.1.1-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.1.1-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:8a5e2a8c0b3d80d0a49ef65f9fa6c19a25b8dba1915b94ce37ca286105f43ec5"
    REVISION    = REVISION
  }
}

target "torch2-1-2-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.1.2-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.1.2-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:7f1e04f7a0806ab1f70457673bad0caac6ecca374945669139378336f3e2904e"
    REVISION    = REVISION
  }
}

target "torch2-1-2-cu121-drifted" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.1.2-cu121-drifted"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.1.2-cu121-drifted"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:38cda079f36ab5d288cabcaadccc5222ee6bfea3d51b28c39ba028eb275e0277"
    REVISION    = REVISION
  }
}

target "torch2-2-0-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.2.0-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.2.0-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:7755c981e408f1fd3aa295c9368a6a98fb8cc6d3c8b4b30a2d7d607c67831532"
    REVISION    = REVISION
  }
}

target "torch2-2-1-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.2.1-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.2.1-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:32a99f81a55982e0da011abd1126b35f4cf13f55df9ace7c507a88516e223187"
    REVISION    = REVISION
  }
}

target "torch2-2-2-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.2.2-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.2.2-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:634dab4c886094f896b79cbd0e4006a098843a80fd816757b8496e6539e06e3c"
    REVISION    = REVISION
  }
}

target "torch2-2-2-cu121-drifted" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.2.2-cu121-drifted"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.2.2-cu121-drifted"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:a276cd5874758cda6f1b7dc0fd136ba2ab157b067ddb6774b01d72a2335fa87c"
    REVISION    = REVISION
  }
}

target "torch2-3-0-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.3.0-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.3.0-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:c901776dc0acaedbb26b91471f73c36613dc98f2f74cebd25c7bb3b89e069937"
    REVISION    = REVISION
  }
}

target "torch2-3-1-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.3.1-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.3.1-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:71a1c467465c3b39f59db84ba6863a45d2d90d1e0bcd918b6d0d95d2329b6e22"
    REVISION    = REVISION
  }
}

target "torch2-4-0-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.4.0-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.4.0-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:0057cb668c5e445dc1bbffc106efcff8cc2fd92882cb9e4acffd17d85efb511d"
    REVISION    = REVISION
  }
}

target "torch2-4-1-cu121" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.4.1-cu121"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.4.1-cu121"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:e4e9d3696e0717a3601062540dd510eb412db1dd6bbd4e77b6e8b54f70ee93e3"
    REVISION    = REVISION
  }
}

target "torch2-5-0-cu124" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.5.0-cu124"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.5.0-cu124"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:6b05a6e17b67466dc5455c77506b89c191e5deda999e1db1af864f429bff48c2"
    REVISION    = REVISION
  }
}

target "torch2-5-1-cu124" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.5.1-cu124"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.5.1-cu124"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:055e65ce189f819b7bb9c78958d9e54b00cd66499f6ace1501ea4ca8050119ee"
    REVISION    = REVISION
  }
}

target "torch2-6-0-cu124" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.6.0-cu124"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.6.0-cu124"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:020ace8aeafa8664053f27e2bffbdaaf3c5c80b2d2d677d9fb3c1b2436e5d928"
    REVISION    = REVISION
  }
}

target "torch2-6-0-cu124-drifted" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.6.0-cu124-drifted"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.6.0-cu124-drifted"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:a412589b7b3a729fd0b49c095a4b144fa4a43dc73dca89e9cb8e1ce67f0fa64e"
    REVISION    = REVISION
  }
}

target "torch2-7-0-cu126" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.7.0-cu126"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.7.0-cu126"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:85d67d2ddb63c27eaffce750b14f5babd051cf40e1295af4ff93c4b0dc48ccf2"
    REVISION    = REVISION
  }
}

target "torch2-7-1-cu126" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.7.1-cu126"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.7.1-cu126"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:21f577c61a5ddf18d66e2fb45ead71aadece14a7c0da29843af8cb6c8d25d5bc"
    REVISION    = REVISION
  }
}

target "torch2-8-0-cu128" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.8.0-cu128"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.8.0-cu128"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:91f7a50d1a8d2fddaee6f3fa63099c04ef3d4b6144dd080c8ca7d617e41aaf37"
    REVISION    = REVISION
  }
}

target "torch2-9-0-cu128" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.9.0-cu128"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.9.0-cu128"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:74d52af226e8059555b0e48ee9cabf26bb49725789062488aa7162e211000290"
    REVISION    = REVISION
  }
}

target "torch2-9-1-cu128" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.9.1-cu128"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.9.1-cu128"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:8543b7a241aca8cc67adc825b4960f1cd281285a1787bc2da0545456166fc868"
    REVISION    = REVISION
  }
}

target "torch2-9-1-cu128-drifted" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.9.1-cu128-drifted"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.9.1-cu128-drifted"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:b2ca37f50bdd2b71dba2853e7a4189efe6d36eb451174e83ccea37d1bb08a6c8"
    REVISION    = REVISION
  }
}

target "torch2-10-0-cu128" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.10.0-cu128"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.10.0-cu128"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:079e45d3cf5e2096da782162cd34aa6da03c38a74be28f6305e80cef5d925c19"
    REVISION    = REVISION
  }
}

target "torch2-11-0-cu130" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.11.0-cu130"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.11.0-cu130"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:02bf683b7140d5db9afe62a6bcd4058db75decd302ef66ac48eb1b77f1f4ec47"
    REVISION    = REVISION
  }
}

target "torch2-12-0-cu130" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.12.0-cu130"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.12.0-cu130"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:dc3d3f25b8c3e04f8fb6d9cb1cc0a3a1f223c4263b57ddb25484b2e0af9f9a75"
    REVISION    = REVISION
  }
}

target "torch2-12-1-cu130" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.12.1-cu130"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.12.1-cu130"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:ed1b82956e6887c9fed5f63945c3a4e9882c8e9fe9dc174f2c10289eab27d9af"
    REVISION    = REVISION
  }
}

target "torch2-13-0-cu130" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.13.0-cu130"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.13.0-cu130"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:e0b9110677f74b130dbc16558ed5e75ced7ecde279db0d1e3923cbeffc0c00c7"
    REVISION    = REVISION
  }
}

target "torch2-14-0-cu130" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.14.0-cu130"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.14.0-cu130"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:ad5cf5536dedd5a98e477965a3386d818b0cb42f432a3c3903d472e6351f6395"
    REVISION    = REVISION
  }
}

target "torch2-14-1-cu130" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.14.1-cu130"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.14.1-cu130"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:85dd5aa956752b7b3884a221bcb0d7ee5bda865b11e7e8c6c4dfc0a7af3adcdc"
    REVISION    = REVISION
  }
}

target "torch2-15-0-cu132" {
  inherits = ["_image"]
  tags     = ["${REGISTRY}recapture:torch2.15.0-cu132"]
  args = {
    BASE        = "python:3.11.17-slim-bookworm@sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    BASE_DIGEST = "sha256:2333bd330d12de02514770b3585cad313644316047cdee24a7acfdece6de6efb"
    IMAGE       = "torch2.15.0-cu132"
    PYTHON      = "3.11"
    LOCK_HASH   = "sha256:45773d200520d289cdfb0a6218ee61a27047f8d46b411c07078c1b85b12a8462"
    REVISION    = REVISION
  }
}
