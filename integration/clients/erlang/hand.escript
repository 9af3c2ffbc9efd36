%% A hand with eredis.
-mode(compile).

main(_) ->
    io:setopts([binary]),
    process_flag(trap_exit, true),
    logger:set_primary_config(level, none), %% it goes to the standard output
    application:load(eredis),
    {ok, Version} = application:get_key(eredis, vsn),
    {ok, Client} = eredis:start_link(os:getenv("FILA_HOST"), list_to_integer(os:getenv("FILA_PORT"))),
    io:format("~s~n", [Version]),
    loop(Client).

loop(Client) ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            [Block | Words] = binary:split(string:trim(Line), <<" ">>, [global]),
            Args = [unhex(W) || <<"$", W/binary>> <- Words],
            io:format("~s~n", [answer(catch eredis:q(Client, Args, limit(Block)))]),
            loop(Client)
    end.

%% The timeout of a call has to be longer than BLOCK.
limit(<<"-">>) -> 5000;
limit(<<"0">>) -> infinity;
limit(Block) -> binary_to_integer(Block) + 5000.

answer({ok, Value}) -> show(Value);
answer({error, Text}) when is_binary(Text) -> [$-, hex(Text)];
answer(Other) -> [$!, hex(iolist_to_binary(io_lib:format("~p", [Other])))].

show(undefined) -> "_";
show(List) when is_list(List) -> lists:join($\s, [[$*, integer_to_list(length(List))] | [show(V) || V <- List]]);
show(Text) -> [$$, hex(Text)].

hex(Text) -> [io_lib:format("~2.16.0b", [B]) || <<B>> <= Text].
unhex(Text) -> << <<(binary_to_integer(<<A, B>>, 16))>> || <<A, B>> <= Text >>.
