//! Streams without groups.

use super::pair::same_answers;

#[tokio::test]
async fn adding_reading_and_trimming_answer_as_a_real_server() {
    same_answers(
        "
        XADD s 1-1 f v
        XADD s 1-1 f v
        XADD s 1-0 f v
        XADD s 0-0 f v
        XADD s 0 f v
        XADD s 1-* f v
        XADD s 0-* f v
        XADD s 5 f v
        XADD s 5-* f v g w f x
        XADD s 5-5-5 f v
        XADD s -1 f v
        XADD s x f v
        XADD s 6-x f v
        XADD s *-1 f v
        XADD s 6-1 f
        XADD s 6-1 f v g
        XADD s 6-1
        XADD s
        XADD none NOMKSTREAM 1-1 f v
        EXISTS none
        XADD s NOMKSTREAM 7-1 f v
        XADD s MAXLEN 3 8-1 f v
        XLEN s
        XADD s MAXLEN = 2 9-1 f v
        XADD s MAXLEN ~ 1 10-1 f v
        XLEN s
        XADD s MINID 9 11-1 f v
        XADD s MINID ~ 11 12-1 f v
        XADD s MAXLEN -1 13-1 f v
        XADD s MAXLEN x 13-1 f v
        XADD s MINID x 13-1 f v
        XADD s MAXLEN 1 MINID 1 13-1 f v
        XADD s MAXLEN 1 LIMIT 1 13-1 f v
        XADD s MAXLEN ~ 1 LIMIT 1 13-1 f v
        XADD s MAXLEN ~ 1 LIMIT -1 14-1 f v
        XADD s MAXLEN ~ 1 LIMIT x 14-1 f v
        XADD s LIMIT 1 14-1 f v
        XADD s MAXLEN 14-1 f v
        XADD t MAXLEN 0 1-1 f v
        XLEN t
        XADD t 1-1 f v
        XADD t 2-1 f v
        XINFO STREAM t
        XINFO STREAM s
        XRANGE s - +
        XRANGE s - + COUNT 2
        XRANGE s - + COUNT 0
        XRANGE s - + COUNT -1
        XRANGE s - + COUNT x
        XRANGE s - + COUNT
        XRANGE s - + FOO 1
        XRANGE s 9 11
        XRANGE s (9-1 (11-1
        XRANGE s (- +
        XRANGE s (18446744073709551615-18446744073709551615 +
        XRANGE s - (0-0
        XRANGE s x +
        XRANGE s - x
        XRANGE s 12 9
        XRANGE s -
        XRANGE none - +
        XREVRANGE s + -
        XREVRANGE s + - COUNT 1
        XREVRANGE s 11 (9-1
        XREVRANGE s - +
        XREVRANGE none + -
        XLEN none
        XLEN
        XTRIM s MAXLEN 2
        XTRIM s MAXLEN = 2
        XTRIM s MAXLEN ~ 1
        XTRIM s MINID 13
        XTRIM s MAXLEN 2 LIMIT 5
        XTRIM s LIMIT 5
        XTRIM s FOO 5
        XTRIM s MAXLEN
        XTRIM s MAXLEN 1 FOO
        XTRIM s MAXLEN -1
        XTRIM none MAXLEN 1
        XTRIM s MAXLEN 0
        XLEN s
        TYPE s
        XADD s 1-1 f v
        XRANGE s - +
        XINFO STREAM s
        XADD m 18446744073709551615-18446744073709551615 f v
        XADD m * f v
        XADD m 1-1 f v
        XADD m 18446744073709551615-* f v
        XADD n 1-18446744073709551615 f v
        XADD n 18446744073709551616-1 f v
        SET str 1
        XADD str 1-1 f v
        XLEN str
        XRANGE str - +
        XREVRANGE str + -
        XTRIM str MAXLEN 1
        XINFO STREAM str
        XINFO STREAM none
        XINFO STREAM
        XINFO GROUPS
        XINFO GROUPS none
        XINFO GROUPS str
        XINFO NONSENSE s
        XINFO
        XREAD STREAMS n 0
        XREAD COUNT 1 STREAMS n m 0 0
        XREAD STREAMS n $
        XREAD STREAMS n 1-18446744073709551615
        XREAD BLOCK 1 STREAMS n $
        XREAD BLOCK -1 STREAMS n $
        XREAD BLOCK x STREAMS n $
        XREAD COUNT x STREAMS n $
        XREAD COUNT -5 STREAMS n 0
        XREAD COUNT 0 STREAMS n 0
        XREAD STREAMS n
        XREAD STREAMS n m 0
        XREAD STREAMS n >
        XREAD STREAMS n x
        XREAD STREAMS none 0
        XREAD STREAMS str 0
        XREAD GROUP g c STREAMS n 0
        XREAD NOACK STREAMS n 0
        XREAD FOO STREAMS n 0
        XREAD COUNT 1 BLOCK 1
        XREAD
        ",
    )
    .await;
}
