/* Formats that sentences define, for other folders: their records. */
#ifndef HC_OWN_H
#define HC_OWN_H

#include "formats/own/record.h"

#endif
