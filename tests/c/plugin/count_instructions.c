/* A plug-in of qemu-user that prints how many instructions a program executed. The prototypes are those of QEMU's
 * plug-in interface, version 1: its header is not packaged everywhere.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct qemu_plugin_tb;
enum { ADD_U64 = 0 };
typedef uint64_t plugin_id;
typedef void on_block(plugin_id id, struct qemu_plugin_tb *block);
typedef void on_exit(plugin_id id, void *data);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, on_block *call);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int op, void *to, uint64_t value);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern void qemu_plugin_register_atexit_cb(plugin_id id, on_exit *call, void *data);
extern void qemu_plugin_outs(const char *text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t executed;

static void translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(plugin_id id, void *data) {
    (void)id, (void)data;
    char text[64];
    snprintf(text, sizeof text, "executed %" PRIu64 "\n", executed);
    qemu_plugin_outs(text);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
