//! Consumer groups.

use super::pair::same_answers;

#[tokio::test]
async fn groups_answer_as_a_real_server() {
    same_answers(
        "
        XGROUP CREATE s g 0
        XGROUP CREATE s g 0 MKSTREAM
        XGROUP CREATE s g 0 MKSTREAM
        XGROUP CREATE s h $ MKSTREAM ENTRIESREAD 5
        XGROUP CREATE s i 0 ENTRIESREAD -2
        XGROUP CREATE s i 0 ENTRIESREAD x
        XGROUP CREATE s i x
        XGROUP CREATE s i 0 FOO
        XGROUP CREATE s i
        XGROUP CREATE
        XGROUP FOO s
        XGROUP
        XLEN s
        TYPE s
        XINFO GROUPS s
        XINFO STREAM s
        XREADGROUP GROUP g c STREAMS s >
        XREADGROUP GROUP g c STREAMS s 0
        XADD s 1-1 f v
        XADD s 2-1 f v
        XADD s 3-1 f v
        XADD s 4-1 f v
        XADD s 5-1 f v
        XINFO GROUPS s
        XREADGROUP GROUP g c COUNT 2 STREAMS s >
        XREADGROUP GROUP g d COUNT 1 STREAMS s >
        XREADGROUP GROUP g c NOACK COUNT 1 STREAMS s >
        XREADGROUP GROUP h c STREAMS s >
        XINFO GROUPS s
        XPENDING s g
        XPENDING s g - + 10
        XPENDING s g - + 1
        XPENDING s g - + 0
        XPENDING s g - + -1
        XPENDING s g - + 10 c
        XPENDING s g - + 10 none
        XPENDING s g (1-1 + 10
        XPENDING s g - (3-1 10
        XPENDING s g + - 10
        XPENDING s g IDLE 0 - + 10
        XPENDING s g IDLE 1000000 - + 10
        XPENDING s g IDLE 0 - + 10 d
        XPENDING s g IDLE x - + 10
        XPENDING s g IDLE 0 - +
        XPENDING s g - +
        XPENDING s g -
        XPENDING s g x + 10
        XPENDING s g - + x
        XPENDING s g - + 10 c extra
        XPENDING s none
        XPENDING none g
        XPENDING none g - + 10
        XPENDING s
        XREADGROUP GROUP g c STREAMS s 0
        XREADGROUP GROUP g c STREAMS s 1-1
        XREADGROUP GROUP g c COUNT 1 STREAMS s 0
        XREADGROUP GROUP g none STREAMS s 0
        XREADGROUP GROUP g c STREAMS s 99
        XPENDING s g - + 10
        XTRIM s MINID 2
        XREADGROUP GROUP g c STREAMS s 0
        XINFO GROUPS s
        XACK s g 1-1
        XACK s g 1-1
        XACK s g 2-1 2-1 3-1 9-9
        XACK s g x
        XACK s none x
        XACK none g 1-1
        XACK s g
        XPENDING s g
        XPENDING s g - + 10
        XINFO GROUPS s
        XREADGROUP GROUP g c STREAMS s >
        XREADGROUP GROUP g c BLOCK 1 STREAMS s >
        XREADGROUP GROUP none c STREAMS s >
        XREADGROUP GROUP g c STREAMS none >
        XREADGROUP GROUP g c STREAMS s none > >
        XREADGROUP GROUP g c STREAMS s
        XREADGROUP GROUP g c STREAMS s $
        XREADGROUP GROUP g c STREAMS s x
        XREADGROUP GROUP g c STREAMS s s >
        XREADGROUP STREAMS s >
        XREADGROUP COUNT 1 BLOCK 1 STREAMS s >
        XREADGROUP GROUP g c COUNT x STREAMS s >
        XREADGROUP GROUP g c BLOCK -1 STREAMS s >
        XREADGROUP GROUP g
        XADD q 1-1 f v
        XADD q 2-1 f v
        XADD q 3-1 f v
        XADD q 4-1 f v
        XGROUP CREATE q g 0
        XREADGROUP GROUP g c STREAMS q >
        XTRIM q MINID 2
        XAUTOCLAIM q g d 0 0 COUNT 1
        XAUTOCLAIM q g d 0 0 COUNT 2
        XPENDING q g - + 10
        XAUTOCLAIM q g e 0 0 JUSTID
        XAUTOCLAIM q g e 0 (2-1
        XPENDING q g - + 10
        XAUTOCLAIM q g e 1000000 0
        XAUTOCLAIM q g e -5 0
        XAUTOCLAIM q g e x 0
        XAUTOCLAIM q g e 0 x
        XAUTOCLAIM q g e 0 - COUNT 0
        XAUTOCLAIM q g e 0 - COUNT x
        XAUTOCLAIM q g e 0 - COUNT
        XAUTOCLAIM q g e 0 - FOO
        XAUTOCLAIM q g e 0
        XAUTOCLAIM q none e 0 0
        XAUTOCLAIM none g e 0 0
        XTRIM q MAXLEN 0
        XREADGROUP GROUP g e STREAMS q 0
        XAUTOCLAIM q g e 0 0
        XINFO GROUPS q
        XINFO STREAM q
        XINFO STREAM q FULL
        XGROUP DESTROY q g
        XGROUP DESTROY q g
        XGROUP DESTROY none g
        XGROUP DESTROY q
        XINFO GROUPS q
        SET str 1
        XGROUP CREATE str g 0
        XGROUP CREATE str g 0 MKSTREAM
        XGROUP DESTROY str g
        XREADGROUP GROUP g c STREAMS str >
        XACK str g 1-1
        XPENDING str g
        XPENDING str g - + 1
        XAUTOCLAIM str g e 0 0
        ",
    )
    .await;
}

#[tokio::test]
async fn a_stream_is_told_in_full_as_by_a_real_server() {
    same_answers(
        "
        XINFO STREAM none FULL
        XADD s 1-1 f v
        XADD s 2-1 f v
        XADD s 3-1 f v
        XINFO STREAM s FULL
        XGROUP CREATE s g 0
        XGROUP CREATE s h 2-1
        XINFO STREAM s FULL
        XREADGROUP GROUP g c COUNT 2 STREAMS s >
        XREADGROUP GROUP g d STREAMS s >
        XREADGROUP GROUP h c NOACK STREAMS s >
        XINFO STREAM s FULL
        XINFO STREAM s full count 1
        XINFO STREAM s FULL COUNT 0
        XINFO STREAM s FULL COUNT -1
        XINFO STREAM s FULL COUNT x
        XINFO STREAM s FULL COUNT
        XINFO STREAM s FULL LIMIT 1
        XINFO STREAM s FULL COUNT 1 1
        XINFO STREAM s SOME
        XACK s g 1-1
        XTRIM s MAXLEN 0
        XINFO STREAM s FULL
        SET str 1
        XINFO STREAM str FULL
        ",
    )
    .await;
}
