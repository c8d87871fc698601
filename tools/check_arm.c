// Calls native kernels as XLA does, with each buffer before a page that nobody may touch.
//
// Standard input has a line for each call: library, function, file of buffers, file of the result.
// A file of buffers has int64 numbers: of operands, of results, and the size of each; then the
// operands follow.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 1 << 16, MOST = 128 };

static void *guarded(int64_t size) {
  int64_t room = (size + PAGE - 1) / PAGE * PAGE;
  char *start = mmap(0, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED || mprotect(start + room, PAGE, PROT_NONE)) return 0;
  return start + room - size;
}

static int fail(const char *what, const char *name) {
  fprintf(stderr, "%s: %s\n", what, name);
  return 1;
}

int main(void) {
  char library[512], function[512], given[512], made[512];
  while (scanf("%511s %511s %511s %511s", library, function, given, made) == 4) {
    void *module = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!module) return fail("dlopen", dlerror());
    void *(*handler)(void *) = (void *(*)(void *))dlsym(module, function);
    FILE *in = fopen(given, "rb");
    int64_t counts[2], sizes[MOST];
    if (!handler || !in || fread(counts, 8, 2, in) != 2) return fail("no call", function);
    int64_t all = counts[0] + counts[1];
    if (all > MOST || fread(sizes, 8, all, in) != (size_t)all) return fail("no sizes", given);
    void *buffers[MOST][6] = {0}, *pointers[MOST];
    for (int i = 0; i < all; i++) {
      void *memory = guarded(sizes[i]);
      if (!memory) return fail("no memory", given);
      if (i < counts[0] && fread(memory, 1, sizes[i], in) != (size_t)sizes[i])
        return fail("no operand", given);
      if (i >= counts[0]) memset(memory, 0xA5, sizes[i]);
      buffers[i][3] = memory;
      pointers[i] = buffers[i];
    }
    fclose(in);
    void *frame[24] = {0};
    frame[7] = (void *)counts[0];
    frame[12] = (void *)counts[1];
    frame[9] = pointers;
    frame[14] = pointers + counts[0];
    if (handler(frame)) return fail("an error", function);
    FILE *out = fopen(made, "wb");
    if (!out || fwrite(buffers[counts[0]][3], 1, sizes[counts[0]], out) != (size_t)sizes[counts[0]])
      return fail("no result", made);
    fclose(out);
    dlclose(module);
  }
  return 0;
}
