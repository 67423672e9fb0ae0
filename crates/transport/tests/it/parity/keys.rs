//! Strings, hashes and expiry.

use super::pair::same_answers;

#[tokio::test]
async fn strings_hashes_and_expiry_answer_as_a_real_server() {
    same_answers(
        "
        GET a
        SET a 1
        GET a
        get a
        SET a 2 NX
        SET a 2 XX
        SET b 2 XX
        SET a 3 GET
        SET fresh 1 NX GET
        SET fresh 2 NX GET
        SET a 3 EX 100
        TTL a
        SET a 4 KEEPTTL
        TTL a
        SET a 5
        TTL a
        SET a 5 PX 100000
        TTL a
        SET a 5 EXAT 99999999999
        SET a 5 PXAT 99999999999000
        SET a 5 EX 0
        SET a 5 EX -1
        SET a 5 PX x
        SET a 5 EX 9223372036854775807
        SET a 5 PX 9223372036854775807
        SET a 5 EXAT 9223372036854775807
        SET a 5 EX
        SET a 5 NX XX
        SET a 5 EX 1 PX 1
        SET a 5 EX 1 KEEPTTL
        SET a 5 KEEPTTL EX 1
        SET a 5 NONSENSE
        SET a
        SET
        GET
        GET a b
        TYPE a
        TYPE none
        EXISTS a a none
        EXISTS
        DEL a a none
        DEL
        DEL none
        EXISTS a
        HSET h f 1 g 2
        HSET h f 3 i 4 i 5
        HSET h f
        HSET h f 1 g
        HSET h
        HGET h f
        HGET h i
        HGET h none
        HGET none f
        HGET h
        HGETALL h
        HGETALL none
        HDEL h f none f
        HDEL h
        HDEL none f
        HDEL h g i
        EXISTS h
        TYPE h
        SET s 1
        HSET h f 1
        HGET s f
        HSET s f 1
        HGETALL s
        HDEL s f
        GET h
        SET h 1 GET
        TYPE h
        EXPIRE s 100
        TTL s
        EXPIRE s 100 NX
        EXPIRE s 200 XX
        EXPIRE s 100 GT
        EXPIRE s 300 GT
        TTL s
        EXPIRE s 400 LT
        EXPIRE s 50 LT
        TTL s
        EXPIRE s 1 NX GT
        EXPIRE s 1 GT LT
        EXPIRE s 1 XX GT
        EXPIRE s x
        EXPIRE s 1 FOO
        EXPIRE s x FOO
        EXPIRE s 9223372036854775807
        EXPIRE s
        EXPIRE none 1
        TTL none
        TTL h
        EXPIRE h 10 GT
        EXPIRE h 10 LT
        TTL h
        EXPIRE h 0
        EXISTS h
        EXPIRE s -1
        EXISTS s
        TYPE
        TTL
        ",
    )
    .await;
}
