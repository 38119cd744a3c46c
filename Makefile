# This is the only Makefile of reel; it is not recursive. `make help` lists the targets.
#
#   make [V=release|debug|asan|tsan|cov] [O=build] [VERBOSE=1] [target]
#
# Every variant has its own folder $(O)/$(V), so switching never mixes objects.

V ?= release
O ?= build
B := $(O)/$(V)
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
SHAREDIR ?= $(PREFIX)/share
PKG_CONFIG ?= pkg-config
SHELL := /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# ---- modules, each after those it may include ----
# A MAY_ line names the modules that a module may include. Which modules are linked follows from it.
MODULES := base profiles fold db launcher/sched launcher/slurm launcher/start autotune \
           launcher/machine launcher/wrap launcher/state launcher/submit launcher/run \
           launcher/report launcher/cmd \
           trainer/dev trainer/ops trainer/comm trainer/watch trainer/state trainer/data \
           trainer/dit \
           trainer/ckpt trainer/run trainer/cmd trainer/cuda trainer/cupti curator
MAY_base             :=
MAY_profiles         := base
MAY_fold             := base
MAY_db               := base fold profiles
MAY_launcher/sched   := base
MAY_launcher/slurm   := base launcher/sched
MAY_launcher/start   := base profiles launcher/sched
MAY_autotune         := base profiles launcher/sched launcher/start
MAY_launcher/machine := base profiles launcher/sched
MAY_launcher/wrap    := base profiles
MAY_launcher/state   := base profiles fold launcher/sched launcher/wrap
MAY_launcher/submit  := base profiles fold launcher/sched launcher/start launcher/wrap \
                        launcher/state
MAY_launcher/run     := base profiles fold launcher/sched launcher/start launcher/machine \
                        launcher/wrap launcher/state launcher/submit
MAY_launcher/report  := base profiles db
MAY_launcher/cmd     := base profiles fold db launcher/sched launcher/start autotune \
                        launcher/machine launcher/wrap launcher/state launcher/submit \
                        launcher/run launcher/report
MAY_trainer/dev      := base
MAY_trainer/ops      := base trainer/dev
MAY_trainer/comm     := base profiles trainer/dev
MAY_trainer/watch    := base profiles trainer/dev trainer/ops trainer/comm
MAY_trainer/state    := base profiles trainer/dev trainer/ops trainer/comm
MAY_trainer/data     := base profiles
MAY_trainer/dit      := base profiles trainer/dev trainer/ops trainer/comm trainer/watch \
                        trainer/state trainer/data
MAY_trainer/ckpt     := base profiles trainer/dev trainer/ops trainer/comm trainer/state
MAY_trainer/run      := base profiles trainer/dev trainer/ops trainer/comm trainer/watch \
                        trainer/state trainer/data trainer/dit trainer/ckpt
MAY_trainer/cmd      := base profiles trainer/dev trainer/ops trainer/comm trainer/watch \
                        trainer/state trainer/data trainer/dit trainer/ckpt trainer/run
MAY_trainer/cuda     := base trainer/dev trainer/ops
MAY_trainer/cupti    := base profiles trainer/watch
MAY_curator          := base profiles

# ---- what each module needs from outside ----
PKGS_base          := libcjson libxxhash
PKGS_db            := sqlite3
PKGS_launcher/machine := hwloc
PKGS_curator       := libavformat libavcodec libavutil libswscale
comma := ,
pkg-cflags = $(if $(1),$(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null))
pkg-libs   = $(if $(1),$(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null))
CFLAGS_launcher/machine := $(call pkg-cflags,$(PKGS_launcher/machine))
CFLAGS_db       := $(call pkg-cflags,$(PKGS_db))
CFLAGS_curator  := $(call pkg-cflags,$(PKGS_curator)) -ffp-contract=off
CFLAGS_base     := $(call pkg-cflags,$(PKGS_base))
MPICC ?= mpicc
# These are the options that an MPI's compiler wrapper adds. Open MPI's wrapper prints them in two
# parts, MPICH's and its relatives' as one command line.
mpi-words = $(shell $(MPICC) --showme:$(1) 2>/dev/null || $(MPICC) -show 2>/dev/null)
CFLAGS_trainer  := -ffp-contract=off -fno-math-errno -fno-trapping-math
CFLAGS_trainer/comm := $(patsubst -I%,-isystem %,$(filter -I% -pthread,$(call mpi-words,compile)))
LIBS_base       := $(call pkg-libs,$(PKGS_base)) -lm -lpthread
LIBS_db         := $(call pkg-libs,$(PKGS_db))
LIBS_launcher/machine := $(call pkg-libs,$(PKGS_launcher/machine)) -ldl
LIBS_curator    := $(call pkg-libs,$(PKGS_curator))
LIBS_trainer/comm := $(filter -L% -l% -Wl$(comma)% -pthread,$(call mpi-words,link))
# The CUDA backend takes functions from the program that loads it, so these are exported.
LIBS_trainer/ops  := -ldl -rdynamic

# reel-slurm is linked with libslurm of this machine, else with the one that contrib/slurm-cluster
# unpacked (it then runs in this tree only). SLURM=0: reel asks Slurm through its commands alone.
# SLURM=1: it is an error if there is no libslurm.
has-slurm = $(shell $(CC) $(1) -include slurm/slurm.h -E -x c /dev/null > /dev/null 2>&1 && \
                    echo yes)
SLURM_UNPACKED := $(CURDIR)/build/slurm-packages/root/usr
ifneq ($(SLURM),0)
CFLAGS_launcher/slurm := $(call pkg-cflags,slurm)
LIBS_launcher/slurm   := $(or $(call pkg-libs,slurm),-lslurm)
SLURM_FOUND           := $(if $(call has-slurm,$(CFLAGS_launcher/slurm)),installed)
ifeq ($(SLURM_FOUND)$(call has-slurm,-I$(SLURM_UNPACKED)/include),yes)
SLURM_FOUND           := unpacked
SLURM_SO              := $(firstword $(wildcard $(SLURM_UNPACKED)/lib/*/libslurm.so))
SLURM_LIBDIR          := $(patsubst %/,%,$(dir $(SLURM_SO)))
CFLAGS_launcher/slurm := -isystem $(SLURM_UNPACKED)/include
LIBS_launcher/slurm   := -L$(SLURM_LIBDIR) -Wl,--disable-new-dtags,-rpath,$(SLURM_LIBDIR) -lslurm
endif
# demo and check first install packages, and then build with a second make.
ifeq ($(SLURM)$(SLURM_FOUND)$(filter demo check check-quick help clean,$(MAKECMDGOALS)),1)
$(error SLURM=1 and no slurm/slurm.h: install libslurm-dev, set PKG_CONFIG_PATH to the folder of \
        slurm.pc, or run contrib/slurm-cluster unpack)
endif
endif

# The CUDA toolkit is in the folder of nvcc, or in CUDA_HOME. CUDA=0: do not look for it; CUDA=1: it is
# an error if there is none. An empty variable counts as unset.
override CUDA_HOME := $(or $(CUDA_HOME),$(patsubst %/bin/nvcc,%,$(firstword \
    $(shell command -v nvcc 2> /dev/null) $(wildcard /usr/local/cuda/bin/nvcc))))
LT_H := $(wildcard $(CUDA_HOME)/include/cublasLt.h)
NVCC := $(if $(filter 0,$(CUDA)),,$(if $(LT_H),$(wildcard $(CUDA_HOME)/bin/nvcc)))
CUDA_LACKS := $(if $(wildcard $(CUDA_HOME)/bin/nvcc),no $(CUDA_HOME)/include/cublasLt.h,no nvcc found)
ifeq ($(CUDA)$(NVCC),1)
$(error CUDA=1 and $(CUDA_LACKS): install the CUDA toolkit, or give CUDA_HOME=its folder)
endif
# This finds the header of a library in the toolkit's folder, in a folder of its own, or where its
# packages install it.
cuda-header = $(if $(NVCC),$(firstword $(wildcard $(2)/include/$(1) \
                $(if $(filter $(CUDA_HOME),$(2)),/usr/include/$(1) /usr/include/*-linux-gnu/$(1)))))

# CUPTI is in a folder of its own, or, when it comes from NVIDIA's wheels, in the toolkit's.
CUPTI_H  := $(firstword $(wildcard $(addsuffix /cupti.h,$(CUDA_HOME)/extras/CUPTI/include \
                                                        $(CUDA_HOME)/include)))
CUPTI_SO := $(firstword $(wildcard $(foreach d,extras/CUPTI/lib64 lib64 lib,$(foreach n,so so.*,\
                                             $(CUDA_HOME)/$(d)/libcupti.$(n)))))
RECORDER := $(if $(NVCC),$(if $(CUPTI_H),$(if $(CUPTI_SO),$(B)/libreel-cupti.so)))

# ---- flags ----
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
        -Wwrite-strings -Wundef -Wpointer-arith -Wformat=2 -Wno-format-nonliteral \
        -Wno-missing-field-initializers -Wno-format-truncation -Wconversion -Wno-sign-conversion
ifdef CI
WARN += -Werror
endif
OPT_release := -O2 -g1
OPT_debug   := -O0 -g3
OPT_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
               -fno-omit-frame-pointer
OPT_tsan    := -O1 -g -fsanitize=thread
OPT_cov     := -O0 -g --coverage
ifeq ($(OPT_$(V)),)
$(error V=$(V) is not a variant: use release, debug, asan, tsan or cov)
endif
# Function cloning for constant arguments and complete peeling of long loops did not make the
# arithmetic faster when we measured it, and variable tracking for debuggers changes no code. But they
# take most of the time for compiling the longest of these sources. Only gcc has these options.
OPT_trainer := $(if $(filter release,$(V)),-O3 \
    $(if $(findstring clang,$(CC)),,-fno-ipa-cp-clone -fno-var-tracking-assignments \
                                    --param max-completely-peeled-insns=100))
# The arithmetic is compiled for three kinds of processors, and the trainer chooses one when it runs
# (trainer/ops/simd.h checks which the processor supports); all other code is for any x86-64.
SIMD_v3 := -mavx2 -mfma
SIMD_v4 := $(SIMD_v3) -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl
SIMD_KINDS := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),v3 v4)
SIMD_SRC := $(patsubst %,trainer/ops/%.c,ops_cpu_f64 ops_cpu_f32 ops_cpu_bf16 fma)
# Larger stack frames are refused, because shells and schedulers limit the stack.
FRAMES  := $(if $(filter release,$(V)),-Wframe-larger-than=65536)
CFLAGS  := -std=c17 -D_GNU_SOURCE -I. -fno-common $(WARN) $(OPT_$(V)) $(EXTRA_CFLAGS)
LDFLAGS := $(filter -fsanitize=% --coverage,$(OPT_$(V))) $(EXTRA_LDFLAGS)

# ---- objects ----
src = $(sort $(wildcard $(1)/*.c))
# A program's main is in a file named main.c; everything else of a module is library code.
lib_src    = $(filter-out %/main.c,$(call src,$(1)))
objs       = $(patsubst %.c,$(B)/obj/%.o,$(1))
# A room (a module in a folder) has its own flags, and those of the folder.
room_flags = $($(1)_$(2)) $(if $(findstring /,$(2)),$($(1)_$(firstword $(subst /, ,$(2)))))
# below_of lists the modules below a module, lowest first. closure adds them to a list of modules, in
# link order.
below_of   = $(filter $(MAY_$(1)) $(foreach l,$(MAY_$(1)),$(BELOW_$(l))),$(MODULES))
$(foreach m,$(MODULES),$(eval BELOW_$(m) := $(call below_of,$(m))))
reverse    = $(if $(1),$(call reverse,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))
closure    = $(call reverse,$(filter $(1) $(foreach m,$(1),$(BELOW_$(m))),$(MODULES)))
# These objects are made of several sources, or are not the only one of their source.
EXTRA_profiles    := $(B)/obj/profiles/embedded.o
EXTRA_db          := $(B)/obj/db/embedded.o
QUERIES           := $(wildcard $(addsuffix /queries.sql,$(MODULES)))
$(foreach q,$(QUERIES),$(eval EXTRA_$(patsubst %/queries.sql,%,$(q)) += $(B)/obj/$(q:.sql=.o)))
EXTRA_trainer/ops := $(foreach k,$(SIMD_KINDS),$(patsubst %.c,$(B)/obj/%.$(k).o,$(SIMD_SRC)))
lib_objs   = $(foreach m,$(call closure,$(1)),$(call objs,$(call lib_src,$(m))) $(EXTRA_$(m)))
lib_libs   = $(foreach m,$(call closure,$(1)),$(LIBS_$(m)))

# A program is built if the libraries that its modules need are installed; else a message names the
# missing ones.
TOP_reel        := launcher/cmd
TOP_reel-train  := trainer/cmd
TOP_reel-curate := curator
TOP_reel-slurm  := base
absent     := $(shell for p in $(foreach m,$(MODULES),$(PKGS_$(m))); do \
                          $(PKG_CONFIG) --exists $$p 2> /dev/null || echo $$p; done; \
                      command -v $(MPICC) > /dev/null || echo $(MPICC))
PKGS_trainer/comm := $(MPICC)
missing     = $(if $(filter reel-slurm,$(1)),$(if $(SLURM_FOUND),,libslurm)) \
              $(filter $(absent),$(foreach m,$(call closure,$(TOP_$(1))),$(PKGS_$(m))))
ALL_NAMES  := reel reel-train reel-curate reel-slurm
NAMES      := $(foreach p,$(ALL_NAMES),$(if $(strip $(call missing,$(p))),,$(p)))
LEFT_OUT   := $(filter-out $(NAMES),$(ALL_NAMES))
PROGRAMS   := $(addprefix $(B)/,$(NAMES))
instead = $(if $(filter reel-slurm,$(1)), (reel then asks Slurm by its commands))
without = echo '  $(1) is not built: $(strip $(call missing,$(1))) not found$(call instead,$(1))'

BACKEND := $(if $(NVCC),$(if $(filter reel-train,$(NAMES)),$(B)/libreel-cuda.so) $(RECORDER))
all: $(PROGRAMS) $(BACKEND) ## build the programs, each where its libraries are (default); `make reel` and so
## on: one of them
	@$(foreach p,$(LEFT_OUT),$(call without,$(p)) >&2;)
.DEFAULT_GOAL := all
programs: $(PROGRAMS)
$(NAMES): %: $(B)/%
$(LEFT_OUT):
	@$(call without,$@) >&2; exit 4

$(B)/reel: $(call objs,launcher/cmd/main.c) $(call lib_objs,launcher/cmd) $(B)/flags
	$(call link,$(filter %.o,$^),$(call lib_libs,launcher/cmd))
$(B)/reel-train: $(call objs,trainer/cmd/main.c) $(call lib_objs,trainer/cmd) $(B)/flags
	$(call link,$(filter %.o,$^),$(call lib_libs,trainer/cmd))
$(B)/reel-curate: $(call objs,curator/main.c) $(call lib_objs,curator) $(B)/flags
	$(call link,$(filter %.o,$^),$(call lib_libs,curator))
# Only the part of launcher/sched that the protocol needs is linked with libslurm, which is under the
# GPL.
SLURM_OBJ := $(call objs,$(call src,launcher/slurm) launcher/sched/slurm_wire.c \
                         launcher/sched/slurm_text.c $(call lib_src,base))
$(call objs,$(call src,launcher/slurm)): $(B)/flags-slurm
$(B)/reel-slurm: $(SLURM_OBJ) $(B)/flags $(B)/flags-slurm
	$(call link,$(filter %.o,$^),$(LIBS_launcher/slurm) $(LIBS_base))

# The CUDA backend is one shared object beside reel-train, which is loaded when a run uses its device.
# With the toolkit it is built for GPUs of compute capability 9.0 and 10.0, with PTX for later ones.
# The tests' backend, built from the same sources with tests/shim, computes on the CPU. Register spills
# and local memory are errors: such a kernel must be rewritten.
CXX ?= g++
CUDA_C     := $(wildcard trainer/cuda/*.c)
CUDA_CU    := $(wildcard trainer/cuda/*.cu)
CUDA_ARCH  := 90a 100
CUDA_GEN   := $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_90,code=compute_90
# The output of ptxas for each kernel goes into a file beside the object (see contrib/cuda-registers).
CUDA_WARN  := -Werror all-warnings -Xptxas -v,-warn-spills,-warn-lmem-usage,-Werror
CXX_FLAGS  := -std=c++17 -D_GNU_SOURCE -I. -fPIC -ffp-contract=off -Wall -Wextra $(if $(CI),-Werror) \
              $(OPT_$(V))
# cuBLASLt is searched in the folder that it was linked from, else by the loader. In NVIDIA's wheels its
# file name has a version.
CUDA_LT    := $(firstword $(wildcard $(foreach n,so so.*,$(CUDA_HOME)/lib64/libcublasLt.$(n) \
                                                         $(CUDA_HOME)/lib/libcublasLt.$(n))))
# NCCL and cuDNN
override NCCL_HOME := $(or $(NCCL_HOME),$(CUDA_HOME))
override CUDNN_HOME := $(or $(CUDNN_HOME),$(CUDA_HOME))
NCCL_H     := $(call cuda-header,nccl.h,$(NCCL_HOME))
CUDNN_H    := $(call cuda-header,cudnn.h,$(CUDNN_HOME))
CUDA_NCCL  := $(firstword $(wildcard $(foreach n,so so.2,$(NCCL_HOME)/lib64/libnccl.$(n) \
                                                         $(NCCL_HOME)/lib/libnccl.$(n))))
CUDNN_SO   := $(firstword $(wildcard $(foreach n,so so.9,$(CUDNN_HOME)/lib64/libcudnn.$(n) \
                                                         $(CUDNN_HOME)/lib/libcudnn.$(n))))
CUDNN_LIBS := $(if $(CUDNN_SO),$(CUDNN_SO) -Wl$(comma)-rpath$(comma)$(dir $(CUDNN_SO)),-lcudnn)
# These sources are not built: of cuDNN's attention and of NCCL, or else of their stand-ins.
CUDA_OUT   := $(patsubst %,trainer/cuda/%.c,$(if $(CUDNN_H),attn_dnn_none,attn_dnn_graph attn_dnn_run) \
                                            $(if $(NCCL_H),nccl_none,nccl))
# This links a library by its path, with the folder where the loader finds it, or by its name.
cuda-lib = $(if $(1),-Xlinker $(1) -Xlinker -rpath$(comma)$(dir $(1)),-l$(2))
CUDA_LIBS  := $(if $(NCCL_H),$(call cuda-lib,$(CUDA_NCCL),nccl)) $(call cuda-lib,$(CUDA_LT),cublasLt) \
              $(if $(CUDNN_H),$(call cuda-lib,$(CUDNN_SO),cudnn))
CUDA_OBJ   := $(patsubst trainer/cuda/%,$(B)/obj/cuda/%.o,$(filter-out $(CUDA_OUT),$(CUDA_C)) $(CUDA_CU))
SHIM_SRC   := $(wildcard tests/shim/*.c tests/shim/*.cc)
SHIM_OBJ   := $(patsubst %,$(B)/obj/shim/%.o,$(filter-out %_none.c,$(CUDA_C)) $(CUDA_CU) $(SHIM_SRC))
# These are the shim's objects for a toolkit without cuDNN and NCCL.
BARE_OBJ   := $(patsubst %,$(B)/obj/shim/trainer/cuda/%.c.o,attn_dnn_none nccl_none) \
              $(filter-out %/attn_dnn_graph.c.o %/attn_dnn_run.c.o %/nccl.c.o,$(SHIM_OBJ))
# Each kind of object is rebuilt only when its own flags change, because that takes minutes.
FLAGS_cuda-cu   = $(NVCC) $(CUDA_GEN) $(CUDA_WARN)
FLAGS_cuda-c    = $(CC) $(CFLAGS) $(CFLAGS_trainer) $(CUDA_HOME) $(NCCL_H) $(CUDNN_H)
FLAGS_cuda-link = $(NVCC) $(CUDA_LIBS)
FLAGS_cupti     = $(CC) $(CFLAGS) $(CUPTI_FLAGS) $(CUPTI_H) $(CUPTI_SO)
FLAGS_shim      = $(CC) $(CFLAGS) $(CFLAGS_trainer) $(CFLAGS_trainer/comm) $(CXX) $(CXX_FLAGS)
FLAGS_shim-link = $(CXX) $(LDFLAGS) $(LIBS_trainer/comm)
FLAGS_slurm     = $(CFLAGS_launcher/slurm) $(LIBS_launcher/slurm)
# The build reports once which parts of CUDA it found, and again when they change.
found = ; $(if $(2),with $(1),without $(1)$(if $(3), (see $(3))): $(4))
CUDA_FOUND = $(if $(NVCC),of $(CUDA_HOME)$(call found,NCCL,$(NCCL_H),NCCL_HOME,what GPUs exchange goes \
through the host's memory)$(call found,cuDNN,$(CUDNN_H),CUDNN_HOME,attention is computed by slow \
kernels)$(call found,CUPTI,$(RECORDER),,nothing records a GPU's activity),$(if $(filter 0,$(CUDA)),left \
out (CUDA=0),$(CUDA_LACKS) (see CUDA_HOME): the backend is not built))
$(B)/cuda-found: FORCE
	@mkdir -p $(@D)
	@echo "$(CUDA_FOUND)" | cmp -s - $@ || echo "$(CUDA_FOUND)" | tee $@ | sed 's/^/  CUDA   /'
FLAGS_OF := $(patsubst %,$(B)/flags-%,cuda-cu cuda-c cuda-link cupti shim shim-link slurm)
$(B)/flags $(FLAGS_OF): | $(B)/cuda-found
$(FLAGS_OF): $(B)/flags-%: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(FLAGS_$*)' | cmp -s - $@ || printf '%s\n' '$(FLAGS_$*)' > $@
$(B)/libreel-cuda.so: $(CUDA_OBJ) $(B)/flags-cuda-link
	$(call say,LINK,$@)
	$(Q)$(NVCC) -shared -cudart static -o $@ $(CUDA_OBJ) $(CUDA_LIBS)
$(B)/obj/cuda/%.c.o: trainer/cuda/%.c $(B)/flags-cuda-c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS) -fPIC $(CFLAGS_trainer) -isystem $(CUDA_HOME)/include \
	  $(patsubst %,-isystem %,$(sort $(filter-out $(CUDA_HOME)/include/ /usr/include/,\
	                                              $(dir $(NCCL_H) $(CUDNN_H))))) -MMD -MP -c -o $@ $<
$(B)/obj/cuda/%.cu.o: trainer/cuda/%.cu $(B)/flags-cuda-cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) -std=c++17 -O3 -I. -Xcompiler -fPIC -fmad=false $(CUDA_GEN) $(CUDA_WARN) \
	  -MMD -MP -MF $(@:.o=.d) -c -o $@ $< > $(@:.o=.ptxas) 2>&1 || { cat $(@:.o=.ptxas) >&2; exit 1; }
.PHONY: $(B)/cuda-calls
$(B)/cuda-calls: $(filter %.c.o,$(CUDA_OBJ)) # compiles in seconds, because it leaves out the kernels
$(B)/shim/libreel-cuda.so: $(SHIM_OBJ) $(B)/flags-shim-link
$(B)/shim/bare/libreel-cuda.so: $(BARE_OBJ) $(B)/flags-shim-link
$(B)/shim/libreel-cuda.so $(B)/shim/bare/libreel-cuda.so:
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(LDFLAGS) -shared -o $@ $(filter %.o,$^) $(LIBS_trainer/comm)
$(B)/obj/shim/%.c.o: %.c $(B)/flags-shim
	$(call shim-c)
$(B)/obj/shim/%.cu.o: %.cu $(B)/flags-shim
	$(call shim-cxx)
$(B)/obj/shim/%.cc.o: %.cc $(B)/flags-shim
	$(call shim-cxx)
define shim-c
	@mkdir -p $(@D)
	$(call say,CC,$<:shim)
	$(Q)$(CC) $(CFLAGS) -fPIC $(CFLAGS_trainer) $(CFLAGS_trainer/comm) -Itests/shim -MMD -MP -c -o $@ $<
endef
define shim-cxx
	@mkdir -p $(@D)
	$(call say,CXX,$<:shim)
	$(Q)$(CXX) -x c++ $(CXX_FLAGS) -Itests/shim -MMD -MP -c -o $@ $<
endef

# The recorder of a GPU's activity is a shared object of its own, for any CUDA program. It contains the
# parts of base, profiles and xxHash that it uses, and exports two functions. The tests' recorder uses
# the shim's CUPTI, which is in the shim's backend.
CUPTI_SRC   := $(wildcard trainer/cupti/*.c) profiles/kernels.c profiles/timeline.c \
               $(patsubst %,base/%.c,err str hash json_out json_scan file clock)
CUPTI_FLAGS := $(CFLAGS_base) -DXXH_INLINE_ALL -fPIC -fvisibility=hidden -ffunction-sections
CUPTI_LINK  := -shared -Wl,--gc-sections,-z,defs,--as-needed
$(B)/libreel-cupti.so: $(patsubst %.c,$(B)/obj/cupti/%.o,$(CUPTI_SRC)) $(B)/flags-cupti
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(CUPTI_LINK) -o $@ $(filter %.o,$^) $(CUPTI_SO) \
	  -Wl,-rpath,$(dir $(CUPTI_SO)) -lm -lpthread -ldl
$(B)/obj/cupti/%.o: %.c $(B)/flags-cupti
	@mkdir -p $(@D)
	$(call say,CC,$<:cupti)
	$(Q)$(CC) $(CFLAGS) $(CUPTI_FLAGS) -isystem $(dir $(CUPTI_H)) -isystem $(CUDA_HOME)/include \
	  -MMD -MP -c -o $@ $<
$(B)/shim/libreel-cupti.so: $(patsubst %.c,$(B)/obj/shim/cupti/%.o,$(CUPTI_SRC)) \
                            $(B)/shim/libreel-cuda.so $(B)/flags-shim-link
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--gc-sections -o $@ $(filter %.o,$^) \
	  -L$(@D) -l:libreel-cuda.so -Wl,-rpath,'$$ORIGIN' -ldl
$(B)/obj/shim/cupti/%.o: %.c $(B)/flags-shim
	@mkdir -p $(@D)
	$(call say,CC,$<:shim)
	$(Q)$(CC) $(CFLAGS) $(CUPTI_FLAGS) -Itests/shim -MMD -MP -c -o $@ $<

# The content of --version is a source for each program, rewritten when the commit or the libraries
# change.
COMMIT := $(shell contrib/commit)
pkgs_of = $(sort $(foreach m,$(call closure,$(TOP_$(1))),$(filter-out $(MPICC),$(PKGS_$(m)))))
$(B)/gen/build-%.c: FORCE
	@mkdir -p $(@D)
	@contrib/build-info '$(COMMIT)' $(call pkgs_of,$*) > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(B)/obj/build-%.o: $(B)/gen/build-%.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(addprefix $(B)/,$(ALL_NAMES)): $(B)/%: $(B)/obj/build-%.o

# This is one file for a login node: reel, linked statically with all its libraries.
# contrib/static/alone.c replaces the functions for which the C library would load others (and the
# linker would warn).
STATIC_LIBS := -lhwloc -lsqlite3 -lxxhash $(B)/static/libcjson.a -lm -lpthread
$(B)/static/libcjson.a:
	contrib/static-libs $(@D)
$(B)/reel-static: $(call objs,launcher/cmd/main.c) $(call lib_objs,launcher/cmd) \
                  $(B)/obj/build-reel.o $(B)/obj/contrib/static/alone.o $(B)/static/libcjson.a \
                  $(B)/flags
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -static -o $@ $(filter %.o,$^) $(STATIC_LIBS) 2> $@.log || \
	  { cat $@.log >&2; exit 1; }
reel-static: $(B)/reel-static ## reel as a single file that needs no libraries, for a login node:
## build/release/reel-static

# Command lines are shown only with VERBOSE=1.
Q := $(if $(VERBOSE),,@)
say = $(if $(VERBOSE),,@printf '  %-6s %s\n' $(1) $(2))
define link
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(1) $(2)
endef

module_of = $(filter $(MODULES),$(patsubst %/,%,$(dir $(1))))
define compile
	$(call say,CC,$<$(if $(1),:$(1)))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(if $(call module_of,$<),$(FRAMES)) $(CFLAGS_base) \
	  $(call room_flags,CFLAGS,$(call module_of,$<)) \
	  $(call room_flags,OPT,$(call module_of,$<)) \
	  $(if $(1),-DSIMD=$(1) $(SIMD_$(1))) -MMD -MP -c -o $@ $<
endef
# The fills of philox.c are loops that the compiler shall vectorize.
$(B)/obj/base/philox.o: private CFLAGS += \
    $(if $(filter release,$(V)),-O3 -fno-math-errno -fno-trapping-math)
$(B)/obj/%.o: %.c $(B)/flags
	$(call compile)
$(B)/obj/%.v3.o: %.c $(B)/flags
	$(call compile,v3)
$(B)/obj/%.v4.o: %.c $(B)/flags
	$(call compile,v4)

# profiles/**/*.json and the adapters are compiled in, so that a plan needs no installed files.
PROFILE_JSON := $(sort $(wildcard profiles/*/*.json contrib/adapters/*.json))
$(B)/gen/profiles/embedded.c: $(PROFILE_JSON) contrib/embed-profiles
	@mkdir -p $(@D)
	$(Q)contrib/embed-profiles $(PROFILE_JSON) > $@
# The schema's SQL files are compiled in too.
SCHEMA_SQL := $(sort $(filter-out $(QUERIES),$(wildcard db/*.sql)) $(wildcard db/migrations/*.sql))
$(B)/gen/db/embedded.c: $(SCHEMA_SQL) contrib/embed-sql
	@mkdir -p $(@D)
	$(Q)contrib/embed-sql $(SCHEMA_SQL) > $@
# So are the longer statements of a room.
$(B)/gen/%/queries.c: %/queries.sql contrib/embed-queries
	@mkdir -p $(@D)
	$(Q)contrib/embed-queries $< > $@
$(B)/obj/%/embedded.o: $(B)/gen/%/embedded.c $(B)/flags
	$(call compile)
$(B)/obj/%/queries.o: $(B)/gen/%/queries.c $(B)/flags
	$(call compile)

# This stamp changes only when compiler or flags do.
# (Targets with flags of their own, which a prerequisite would take on, have to find the same there.)
all_room_flags = $(foreach m,$(filter-out launcher/slurm,$(MODULES)),\
                   $(call room_flags,CFLAGS,$(m)) $(call room_flags,OPT,$(m)))
FLAGS := $(CC) $(CFLAGS) $(FRAMES) $(all_room_flags) $(LDFLAGS)
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(FLAGS)' | cmp -s - $@ || printf '%s\n' '$(FLAGS)' > $@
FORCE:
-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# ---- tests ----
# tests/unit/test_<module>_<what>.c is one cmocka program, linked with that module and the modules
# below it.
UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
UNIT_BIN := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRC))
TEST_LIBS := -lcmocka
# Unit programs are linked with gold, which takes half the time of the ordinary linker, because there
# are many of them. Installed programs are linked with the ordinary one.
TEST_LD := $(if $(filter release,$(V)),$(if $(shell command -v ld.gold),-fuse-ld=gold))
# Sources that several tests share are compiled once, into an archive from which each program links the
# functions that it calls. Such a source calls no module above those of its callers. It has a header
# beside it; a source without a header is a program that scripts start.
# Sources of WRAP_SRC define functions for the linker's --wrap, several of them the same, so each is
# linked with the unit programs that include its header, by the flags that it names, and with no other.
WRAP_SRC   := tests/lib/allocations.c tests/lib/fault.c
SHARED_SRC := $(filter-out $(WRAP_SRC),$(patsubst %.h,%.c,$(wildcard tests/lib/*.h)))
SHARED     := $(B)/tests/lib/shared.a
wrapped_by  = $(patsubst tests/unit/%.c,$(B)/tests/%,$(shell grep -l '"$(1:.c=.h)"' $(UNIT_SRC)))
$(foreach w,$(WRAP_SRC),$(eval $(call wrapped_by,$(w)): $(call objs,$(w)))\
                        $(eval $(call wrapped_by,$(w)): WRAPS += $(w)))
$(SHARED): $(call objs,$(SHARED_SRC))
	@mkdir -p $(@D)
	$(call say,AR,$@)
	$(Q)rm -f $@; ar rcs $@ $^
$(call objs,$(SHARED_SRC) $(WRAP_SRC)): CFLAGS += $(if $(filter release,$(V)),-O1) -fvisibility=hidden \
  $(CFLAGS_trainer) $(CFLAGS_trainer/comm) $(CFLAGS_db)
# A unit program is linked with the module or room that its name gives; else with the rooms of that
# folder below a program's commands.
test_word   = $(word 2,$(subst _, ,$(notdir $(1))))
module_of_word = $(or $(filter $(1) %/$(1),$(MODULES)),\
                      $(foreach p,$(ALL_NAMES),$(filter $(1)/%,$(MAY_$(TOP_$(p))))))
test_module = $(call module_of_word,$(call test_word,$(1)))
# A test, and a source of WRAP_SRC, names extra link flags in a line `// LINK: -Wl,--wrap=malloc`.
test_link   = $(shell sed -n 's|^// LINK: ||p' $(1) $(WRAPS))
.SECONDEXPANSION:
$(UNIT_BIN): $(B)/tests/%: $(B)/obj/tests/unit/%.o \
                           $$(call lib_objs,$$(call test_module,$$@)) $(SHARED) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(TEST_LD) $(call test_link,tests/unit/$*.c) -o $@ $(filter %.o,$^) $(SHARED) \
	  $(call lib_libs,$(call test_module,$@)) $(TEST_LIBS)
# Tests compute little themselves, so that optimizing them would take longer than it saves.
ifeq ($(V),release)
$(B)/obj/tests/unit/%.o $(B)/obj/tests/gpu/%.o: CFLAGS += -O1
$(foreach m,autotune base db fold launcher sched,$(B)/obj/tests/unit/test_$(m)_%.o): CFLAGS += -O0
# These draw thousands of pictures.
$(B)/obj/tests/unit/test_curator_shot%.o: CFLAGS += -O2 -fno-math-errno -fno-trapping-math \
  -ffinite-math-only -fno-signed-zeros
endif
# The cases of the operations (tests/gpu) run on any table, so both programs are linked with them.
$(B)/tests/test_trainer_cases $(B)/tests/test_trainer_cuda_cases: $(call objs,$(call src,tests/gpu))
# t6092 runs this program with kernels that have the address sanitizer: here the far device, which has
# the memory, and the surroundings of tensors have it too.
CASES      := $(B)/tests/test_trainer_cuda_cases
CASES_ASAN := $(B)/tests/lib/cases-asan
ASAN_OBJ   := $(patsubst %,$(B)/obj/%.asan.o,trainer/dev/dev_far tests/gpu/cases_lab)
$(ASAN_OBJ): $(B)/obj/%.asan.o: %.c $(B)/flags
	$(call compile)
$(ASAN_OBJ): CFLAGS += -O1 -fsanitize=address
$(CASES_ASAN): $(CASES) $(ASAN_OBJ) $(B)/obj/tests/unit/test_trainer_cuda_cases.o \
               $(call lib_objs,$(call test_module,$(CASES))) $(call objs,$(call src,tests/gpu)) $(SHARED)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(TEST_LD) -fsanitize=address -o $@ \
	  $(filter-out $(ASAN_OBJ:.asan.o=.o),$(filter %.o,$^)) $(SHARED) \
	  $(call lib_libs,$(call test_module,$(CASES))) $(TEST_LIBS)
# The decisions about cuDNN's attention need no GPU.
$(B)/tests/test_trainer_cuda_attn: $(call objs,trainer/cuda/attn_dnn.c)
$(B)/obj/tests/gpu/%.o: CFLAGS += $(CFLAGS_trainer)
$(B)/obj/tests/unit/test_trainer_%.o: CFLAGS += $(CFLAGS_trainer) $(CFLAGS_trainer/comm)
$(B)/obj/tests/unit/test_curator_%.o: CFLAGS += $(CFLAGS_curator)
$(B)/obj/tests/unit/test_launcher_%.o: CFLAGS += $(CFLAGS_launcher/machine)
$(B)/obj/tests/unit/test_db_%.o: CFLAGS += $(CFLAGS_db)
.PRECIOUS: $(B)/obj/%.o $(B)/gen/build-%.c $(B)/obj/build-%.o $(B)/gen/%/queries.c

# Some parts of the recorder of a GPU's activity need no GPU.
$(B)/tests/test_trainer_cupti_records: $(B)/obj/trainer/cupti/records.o
# The recorder's buffers are tested with a CUPTI in the test itself.
$(B)/tests/test_trainer_cupti_recorder: \
  $(patsubst %,$(B)/obj/shim/cupti/trainer/cupti/%.o,recorder records report)

# These programs test a GPU, on a machine that has one (see tests/gpu/visit).
GPU_BIN := $(patsubst tests/gpu/programs/%.c,$(B)/tests/gpu/%,$(wildcard tests/gpu/programs/*.c))
# Each program is linked with trainer/ops, or the module named here, and the modules below it.
GPU_TOP_block := trainer/dit
gpu_top = $(or $(GPU_TOP_$(notdir $(1))),trainer/ops)
$(GPU_BIN): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/programs/%.o $(call objs,$(call src,tests/gpu)) \
                              $$(call lib_objs,$$(call gpu_top,$$@)) $(B)/flags
	@mkdir -p $(@D)
	$(call link,$(filter %.o,$^),$(call lib_libs,$(call gpu_top,$@)))

# plans makes cuDNN's plans of attention for GPUs that this machine lacks, with the toolkit's stub as
# driver.
CUDA_STUB := $(firstword $(wildcard $(CUDA_HOME)/lib64/stubs/libcuda.so $(CUDA_HOME)/lib/stubs/libcuda.so))
PLANS_BIN := $(if $(CUDNN_H),$(if $(CUDA_STUB),$(B)/tests/plans/plans))
$(B)/tests/plans/plans: tests/gpu/plans/plans.c trainer/cuda/attn_dnn_graph.c trainer/cuda/attn_dnn.c \
                        base/err.c base/dtype.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)ln -sf $(CUDA_STUB) $(@D)/libcuda.so.1
	$(Q)$(CC) $(filter-out -MMD,$(CFLAGS)) -isystem $(dir $(CUDNN_H)) -isystem $(CUDA_HOME)/include \
	  -o $@ $(filter %.c,$^) $(CUDNN_LIBS)
$(B)/tests/plans/plans: $(wildcard trainer/cuda/attn_dnn*.h)

# Scripts start these programs: stand-ins for a trainer, writers and readers of files, questions to a
# cluster. A source names extra link flags as a unit test does.
HELPERS := $(patsubst tests/lib/%.c,$(B)/tests/lib/%,$(filter-out $(SHARED_SRC) $(WRAP_SRC),\
                                                   $(wildcard tests/lib/*.c)))
$(HELPERS): $(B)/tests/lib/%: $(B)/obj/tests/lib/%.o $(call lib_objs,profiles launcher/sched) \
                              $(SHARED) $(B)/flags
	@mkdir -p $(@D)
	$(call link,$(filter %.o,$^) $(SHARED),$(call lib_libs,profiles launcher/sched) $(TEST_LIBS) \
	  $(call test_link,tests/lib/$*.c))

# These preloaded libraries pause a program, kill it, or make its calls fail at a given place.
HELPERS += $(patsubst tests/lib/preload/%.c,$(B)/tests/lib/%.so,$(wildcard tests/lib/preload/*.c))
$(B)/tests/lib/%.so: tests/lib/preload/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra -O1 -shared -fPIC -o $@ $<

# These programs compute the trainer's results of small cases, which are compared with PyTorch's (see
# tests/peers/torch).
PEERS_BIN := $(patsubst tests/peers/%.c,$(B)/tests/peers/%,$(sort $(wildcard tests/peers/*.c)))
$(PEERS_BIN): $(B)/tests/peers/%: $(B)/obj/tests/peers/%.o $(call lib_objs,trainer/cmd) $(SHARED) \
                                  $(B)/flags
	@mkdir -p $(@D)
	$(call link,$(filter %.o,$^) $(SHARED),$(call lib_libs,trainer/cmd) $(TEST_LIBS))
$(B)/obj/tests/peers/%.o: CFLAGS += $(CFLAGS_trainer) $(CFLAGS_trainer/comm)

# These programs are parsers with libFuzzer's entry point. The ordinary build replays files through
# them, and `make fuzz` searches for new files.
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BIN := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(FUZZ_SRC))
$(FUZZ_BIN): $(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/replay.o \
                                $(call lib_objs,trainer/cmd) $(B)/flags
	@mkdir -p $(@D)
	$(call link,$(filter %.o,$^),$(call lib_libs,trainer/cmd))
$(HELPERS) $(PEERS_BIN) $(FUZZ_BIN) $(GPU_BIN): private LDFLAGS += $(TEST_LD)
FUZZ_LIB := $(call src,base) $(call src,profiles) $(B)/gen/profiles/embedded.c
$(B)/fuzz/%: tests/fuzz/%.c $(FUZZ_LIB)
	@mkdir -p $(@D)
	$(call say,CLANG,$@)
	$(Q)clang -std=c17 -D_GNU_SOURCE -I. -O1 -g -fsanitize=fuzzer,address,undefined \
	  $(CFLAGS_base) -o $@ $^ $(LIBS_base)

TESTS_BIN := $(UNIT_BIN) $(FUZZ_BIN) $(PEERS_BIN) $(PROGRAMS) $(HELPERS) $(GPU_BIN) $(CASES_ASAN) \
             $(B)/tests/bench/terms \
             $(PLANS_BIN) $(B)/shim/libreel-cuda.so $(B)/shim/bare/libreel-cuda.so \
             $(B)/shim/libreel-cupti.so
tests: $(TESTS_BIN) ## build the programs and the unit tests

# A first make installs packages; a second one finds the programs in them (pkg-config, mpicc), and a
# third one libslurm, which is unpacked while the second one builds all that does not need it.
BUILD_TESTS = $(MAKE) --no-print-directory -j$$(nproc) tests
tests-here:
	@contrib/deps check
	@contrib/slurm-cluster unpack & $(BUILD_TESTS) SLURM=0; built=$$?; \
	  wait $$! && [ $$built -eq 0 ] && $(BUILD_TESTS)

check: tests-here ## install what the tests need, build, run every ordinary test and the lint
	@tests/run --build $(B) $(T)

check-quick: tests-here ## a part of check for use while one works: unit programs and fast scripts
	@tests/run --build $(B) --quick $(T)

check-slow: tests ## the long proofs: scripts of all days, 410 kills of a training, 300 seeds of
## shots, 400 killed submitters, 200 simulated clusters, every legal layout, memory of larger models, eight clips
## that a model memorises, pictures of 1.3 GB, MPICH where it is installed
	@tests/run --build $(B) "$$(grep -l '^# DAYS' tests/cli/t* tests/slurm/t* | sed 's/$$/$$/' | \
	  paste -sd '|' | sed 's/|/\\|/g')"
	@KILLS=100 REEL_TEST_KILLS=400 TEST_TIMEOUT=3000 \
	  tests/run --long --build $(B) 't61[01]0-resume\|sched'
	@SHOT_SEEDS=300 DRAW=all TEST_TIMEOUT=3000 tests/run --long --build $(B) curator_shots
	@DRAW=all TEST_TIMEOUT=3000 RESUMES=all tests/run --long --build $(B) trainer_reshard
	@for d in 0 1 2; do DRAW=$$d tests/run --long --build $(B) t6300 || exit 1; done
	@RANKS=all RESUMES=all LAYOUTS=covering MEMORY=all TEST_TIMEOUT=10000 \
	  tests/run --long --build $(B) \
	  't6010\|t6020\|t6040\|t6060\|t6050-traffic\|t6120-resume'
	@SEEDS=10 RANKS=all LAYOUTS=covering TEST_TIMEOUT=9000 FAR_UNITS="stages stages:4 dit numerics \
	  numerics:2 overlap overlap:2 optim:4 optim_skip:4 warm warm:4 train:4 ckpt:4 ckpt_go init held reshard \
	  stored:4 traffic:2 work" tests/run --long --build $(B) t6070
	@WORLDS=200 DRAW=all tests/run --long --build $(B) \
	  'autotune_worlds\|autotune_stream\|profiles_shard'
	@CLASSES=all tests/run --long --build $(B) t6310
	@BARRIERS=all TEST_TIMEOUT=3000 tests/run --long --build $(B) t6088
	@$(MAKE) --no-print-directory V=asan $(O)/asan/shim/libreel-cuda.so \
	  $(O)/asan/tests/test_trainer_cuda_cases
	@ORDERS=all TEST_TIMEOUT=3000 tests/run --long --build $(O)/asan trainer_cuda_cases
	@REEL_BIN=$(abspath $(O)/asan) tests/slow/overrun
	@SEEDS=3 RUNS=all RANKS=all LAYOUTS=covering CUDA_UNITS="train ckpt" TEST_TIMEOUT=9000 \
	  tests/run --long --build $(B) t6080
	@SEEDS=3 RANKS=all LAYOUTS=covering PROGRAM=all TEST_TIMEOUT=9000 tests/run --long --build $(B) t6091
	@ORDERS=all tests/run --long --build $(B) 'trainer_cases\|trainer_cuda_cases'
	@BOUNDS=all tests/run --long --build $(B) t6092
	@for l in tp=2,pp=2,vpp=2 cp=2,dp=2,zero=3,fsdp=4 tp=2,sp=1,cp=2,cp_kind=a2a; do \
	  COUNT=70 LAYOUT=$$l REEL_BIN=$(abspath $(B)) tests/slow/resume-kill9 || exit 1; done
	@REEL_BIN=$(abspath $(B)) tests/slow/overlap
	@REEL_BIN=$(abspath $(B)) tests/slow/curate-long
	@REEL_BIN=$(abspath $(B)) tests/slow/learning
	@REEL_BIN=$(abspath $(B)) tests/slow/all-layouts
	@REEL_BIN=$(abspath $(B)) tests/slow/static
	@REEL_BIN=$(abspath $(B)) tests/slow/dist
	@REEL_BIN=$(abspath $(B)) tests/slow/mpich
	@REEL_BIN=$(abspath $(B)) tests/slow/oracle
	@REEL_BIN=$(abspath $(B)) tests/slow/shim-draws
	@REEL_BIN=$(abspath $(B)) tests/slow/gpu-pack
	@REEL_BIN=$(abspath $(B)) tests/slow/visit

check-peers: tests ## webdataset and Megatron-Energon read our shards, PyTorch computes our model,
## reel topo loads hwloc's machines, Megatron-LM and torchtitan parse our flags (see tests/peers)
	@REEL_BIN=$(abspath $(B)) REEL_SRC=$(CURDIR) tests/peers/readers
	@REEL_BIN=$(abspath $(B)) REEL_SRC=$(CURDIR) tests/peers/torch
	@REEL_BIN=$(abspath $(B)) tests/peers/machines
	@REEL_BIN=$(abspath $(B)) REEL_SRC=$(CURDIR) tests/peers/adapters

# Tests on a machine with a GPU; VISIT= gives further options, such as --budget 500.
VISIT_NEEDS := $(filter $(B)/reel-train,$(PROGRAMS)) $(BACKEND) $(GPU_BIN)
no-gpu = nvidia-smi -L > /dev/null 2>&1 || { echo 'skipped: this machine has no NVIDIA GPU'; exit 0; }
check-gpu: $(VISIT_NEEDS) ## every operation, runs and full sizes on this machine's GPU against the
## CPU (see tests/gpu/visit); the same command goes on where the last one ended
	@$(no-gpu); tests/gpu/visit check --bin $(B) $(VISIT)

bench-gpu: $(VISIT_NEEDS) ## rates, steps and memory of this machine's GPU (see tests/gpu/visit)
	@$(no-gpu); tests/gpu/visit bench --bin $(B) $(VISIT)

bench: $(B)/reel-train ## the trainer's tokens/s and memory beside PyTorch's, on one core (see
## tests/bench/bench): ROUNDS=5 OUT=file.json
	@tests/bench/bench --bin $(B) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(OUT),--out '$(OUT)')

bench-db: $(B)/reel $(B)/tests/lib/step-log ## ingest and status of long runs, on one core (see
## tests/bench/ingest): STEPS=400000 STATUS_STEPS=1000000 ROUNDS=5
	@tests/bench/ingest --bin $(B)

bench-plan: $(B)/reel ## layouts/s of reel plan at 4,096 GPUs beside what is published of Calculon
## (see tests/bench/plan): ROUNDS=5
	@tests/bench/plan --bin $(B) $(if $(ROUNDS),--rounds $(ROUNDS))

$(B)/tests/bench/terms: $(B)/obj/tests/bench/terms.o $(call lib_objs,autotune) $(SHARED) $(B)/flags
	@mkdir -p $(@D)
	$(call link,$(filter %.o,$^) $(SHARED),$(call lib_libs,autotune) $(TEST_LIBS))
bench-terms: $(B)/tests/bench/terms $(B)/reel-train ## a trial's CPU time by class beside what the
## probe says, on an idle machine (see tests/bench/terms.c): ROUNDS=9
	@$(B)/tests/bench/terms --bin $(B) $(if $(ROUNDS),--rounds $(ROUNDS))

FUZZERS := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(FUZZ_SRC))
fuzz: $(FUZZERS) ## search for inputs that break a parser (clang): FUZZ_S=60 seconds each
	@mkdir -p $(B)/fuzz/found $(B)/fuzz/tmp
	@for f in $^; do n=$${f##*/fuzz_}; mkdir -p $(B)/fuzz/new/$$n; \
	  TMPDIR=$(abspath $(B)/fuzz/tmp) $$f -max_total_time=$(or $(FUZZ_S),60) -max_len=65536 \
	    -print_final_stats=1 -artifact_prefix=$(B)/fuzz/found/$$n- \
	    $(B)/fuzz/new/$$n tests/fuzz/corpus/$$n > $(B)/fuzz/$$n.log 2>&1 || \
	    { tail -n 30 $(B)/fuzz/$$n.log; exit 1; }; \
	  sed -n "s/.*executed_units: */  $$n: inputs tried: /p" $(B)/fuzz/$$n.log; done

check-faults: tests ## every fault: each allocation, read, write, sync and rename fails once;
## submitters killed 400 times, and at every system call; 16 preemptions of 8 kinds; 240 notices
## timed, 200 interruptions, 100 cancelled jobs; 300 kills under three kinds of file locks, 4 leases
## whose holders only silence shows to be dead, 60 zombies beside their successors; 50 curations and
## updates killed;
## a PyTorch training through seven faults under reel wrap and under submitit (needs both: see
## tests/peers/faults)
	@FAULT_STEP=1 HISTORIES=150 REEL_TEST_KILLS=400 REEL_UPDATE_KILLS=1 EVERY=1 KILLS=100 STOPS=50 \
	  KINDS=all TEST_TIMEOUT=3000 tests/run --long --build $(B) \
	  'fault\|db_fold\|trainer_ckpt\|sched_local\|submit-\|curate-update\|t8050'
	@contrib/slurm-cluster unpack
	@REEL_BIN=$(abspath $(B)) tests/slow/notices
	@REEL_BIN=$(abspath $(B)) tests/slow/false-done
	@COUNT=100 REEL_BIN=$(abspath $(B)) tests/slow/scancels
	@for m in flock enosys one-host; do \
	  COUNT=100 MODE=$$m REEL_BIN=$(abspath $(B)) tests/slow/kills-locks || exit 1; done
	@REEL_BIN=$(abspath $(B)) tests/slow/silence
	@for r in 1 2; do COUNT=$$((r == 1 ? 50 : 10)) RANKS=$$r REEL_BIN=$(abspath $(B)) \
	  tests/slow/zombies || exit 1; done
	@COUNT=50 REEL_BIN=$(abspath $(B)) tests/slow/curate-kills
	@REEL_BIN=$(abspath $(B)) REEL_SRC=$(CURDIR) tests/peers/faults

demo: ## curate, look, tune, launch, preempt, report: the whole pass under build/demo; SLURM=1: on a
## private Slurm cluster
	@contrib/deps build
	$(if $(filter 1,$(SLURM)),@contrib/slurm-cluster unpack)
	@$(MAKE) --no-print-directory -j$$(nproc) programs
	@contrib/demo --bin $(B) --out $(O)/demo $(if $(VIDEO),--video '$(VIDEO)') \
	  $(if $(filter 1,$(SLURM)),--slurm)

lint: ## layers, length of functions and lines, headers alone, banned calls, comments' first words
	@tests/lint --build $(B)

install: all ## install programs, man pages and completion under PREFIX (DESTDIR honoured)
	contrib/install-files install '$(B)' '$(DESTDIR)' '$(BINDIR)' '$(MANDIR)' '$(SHAREDIR)' \
	  $(if $(filter unpacked,$(SLURM_FOUND)),$(filter-out reel-slurm,$(NAMES)),$(NAMES)) \
	  $(notdir $(BACKEND))

uninstall: ## remove what install has put there
	contrib/install-files uninstall '$(DESTDIR)' '$(SHAREDIR)'

dist: ## a tar ball of the last commit, which builds without git
	@contrib/dist $(O)

clean: ## remove the build folder of this variant
	rm -rf $(B)

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2} \
	  /^## /{printf "  %-14s %s\n", "", substr($$0, 4)}' $(MAKEFILE_LIST)

.PHONY: all programs $(ALL_NAMES) reel-static tests tests-here check check-quick check-slow \
        check-faults check-peers check-gpu bench-gpu bench bench-db bench-plan bench-terms fuzz demo \
        lint install uninstall dist clean help FORCE
