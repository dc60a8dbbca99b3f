/* Products of packed weights with few vectors (batch 1 to 8), directly from storage. */
#ifndef HC_FEW_H
#define HC_FEW_H
#endif
