/* What clang's analyzer can't see from the other files: a failure's status is the one given, never OCT_OK, and ranks agree on a
 * failure wherever one of them has one. tools/lint includes it first, but where one of these functions is defined. */
#include "comm/comm.h"
#include "octet/status.h"

#define oct_fail(err, status, ...)                                                                                               \
    ({                                                                                                                           \
        oct_status given_ = (status);                                                                                            \
        (void)oct_fail(err, given_, __VA_ARGS__);                                                                                \
        given_ ? given_ : OCT_FAILED;                                                                                            \
    })
#define oct_fail_memory(err) ((void)oct_fail_memory(err), OCT_NO_MEMORY)
#define oct_comm_agree(comm, status, err)                                                                                        \
    ({                                                                                                                           \
        oct_status own_ = (status), all_ = oct_comm_agree(comm, own_, err);                                                      \
        own_ ? own_ : all_;                                                                                                      \
    })
